"""Two ways to serve the requests of a checkpoint with random weights: tokens per second of CPU, and equal outputs.

All serve greedily on one CPU thread, each request to its last token.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any, NamedTuple

import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.frames import Seal, encode
from swarden.engine_under_test.disaggregation.tcp import LOOPBACK, TcpLink, listener_on, new_secret
from swarden.engine_under_test.engine import Engine, create_engine
from swarden.engine_under_test.messages import Message
from swarden.engine_under_test.model.checkpoint import read_spec
from swarden.engine_under_test.pair import InProcessLink, Pair, create_pair
from swarden.engine_under_test.ports import Link, Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.units import num_pages
from swarden.harness.bench.timing import Case, paired, timed
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.imports import importing
from swarden.harness.kit.calls import intercept
from swarden.invariants.events import Verified

SHAPES: dict[str, dict[str, int]] = {  # of Gemma 3: tied embeddings, one layer in three reads the whole prefix
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "vocab_size": 1024},
    "100m": {"hidden_size": 640, "intermediate_size": 2560, "num_hidden_layers": 12, "vocab_size": 32_768},
}
HEADS = 8
PAGE_SIZE = 16
Prompts = Sequence[list[int]]


class Checkpoint(NamedTuple):
    """A name in `SHAPES`, and the folder of the checkpoint."""

    name: str
    folder: Path

    def prompts(self, count: int, length: int, random: Random) -> Prompts:
        """Random tokens; 0 and 1 are reserved for the model."""
        return [random.choices(range(2, SHAPES[self.name]["vocab_size"]), k=length) for _ in range(count)]


class Served(NamedTuple):
    """The CPU seconds of serving all requests, and the output of each."""

    seconds: float
    outputs: list[list[int]]


Race = Callable[[Checkpoint, int], Iterator[Case]]  # measures so many pairs


def on_each_checkpoint(measure: Race, *, pairs: int) -> Iterator[Case]:
    """The cases of all shapes, one checkpoint at a time."""
    for name in SHAPES:
        with made(name) as checkpoint:
            yield from measure(checkpoint, pairs)


@contextmanager
def made(name: str) -> Iterator[Checkpoint]:
    """A temporary checkpoint with random weights, written by transformers."""
    module, shape = transformers(), SHAPES[name]
    config = module.Gemma3TextConfig(
        **shape,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        head_dim=shape["hidden_size"] // HEADS,
        query_pre_attn_scalar=shape["hidden_size"] // HEADS,
        sliding_window=64,
        sliding_window_pattern=3,
        max_position_embeddings=1024,
    )
    torch.manual_seed(0)
    with TemporaryDirectory(prefix="swarden-") as folder:
        module.Gemma3ForCausalLM(config).save_pretrained(folder)
        yield Checkpoint(name, Path(folder))


def transformers() -> Any:
    """The module, without its output; raises UsageError if it is not installed."""
    with importing("the baseline of the benchmark"):
        module = import_module("transformers")
    module.logging.set_verbosity_error()
    module.logging.disable_progress_bar()
    # It warns about a missing psutil, which it does not need.
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    return module


def race(case: str, *, tokens: int, pairs: int, notes: Mapping[str, Any] = {}, **sides: Callable[[], Served]) -> Case:
    """Serve both ways in turns: the `tokens` per second of CPU of each, how many outputs are equal, and the notes."""
    outputs: dict[str, list[list[int]]] = {}

    def speed(side: str) -> float:
        served = sides[side]()
        outputs[side] = served.outputs
        return tokens / served.seconds

    figures = paired(pairs, **{side: partial(speed, side) for side in sides})
    equal = [first == second for first, second in zip(*outputs.values(), strict=True)]
    return Case(case, figures | {"equal outputs": sum(equal), "of": len(equal), **notes}, is_wrong=not all(equal))


def serve(engine: Engine | Pair, load: Prompts, new_tokens: int) -> Served:
    seconds, generations = timed(lambda: engine.generate(load, SamplingParams(new_tokens)))
    return Served(seconds, [generation.token_ids for generation in generations])


def config_for(load: Prompts, new_tokens: int) -> EngineConfig:
    """A configuration with memory for all requests at once."""
    longest = max(map(len, load)) + new_tokens
    return EngineConfig(
        page_size=PAGE_SIZE,
        full_pages=len(load) * num_pages(longest, PAGE_SIZE),
        max_running_requests=len(load),
        max_context_len=longest,
    )


# --- our engine against the continuous batching of transformers

REQUESTS, NEW_TOKENS = 32, 32
FAMILIES = 4  # of requests with a common prefix
SHARED_LEN = 96
OWN_LENS = range(16, 48)
SWEPT_REQUESTS = 16  # of the load; the best setting then runs all of it


class BaselineSetting(NamedTuple):
    """The settings of the baseline: attention, tokens per block, most tokens per batch."""

    attention: str
    page_size: int
    max_batch_tokens: int


SWEEP = [BaselineSetting(*values) for values in product(("sdpa", "paged|eager"), (16, 256), (64, 256, 1024))]


def measure_generation(checkpoint: Checkpoint, pairs: int) -> Iterator[Case]:
    """Race both engines without shared prefixes and with them.

    The baseline runs with its best setting of SWEEP, after a warm-up request.
    """
    models = {
        kind: transformers().Gemma3ForCausalLM.from_pretrained(checkpoint.folder, attn_implementation=kind).eval()
        for kind in {setting.attention for setting in SWEEP}
    }
    for families, kind in ((REQUESTS, "no shared prefixes"), (FAMILIES, "shared prefixes")):
        load = prompts(checkpoint, families)
        for model in models.values():
            _theirs(model, load[:1], SWEEP[0])
        _ours(checkpoint, load[:1])
        sweep = {setting: _theirs(models[setting.attention], load[:SWEPT_REQUESTS], setting) for setting in SWEEP}
        best = min(sweep, key=lambda setting: sweep[setting].seconds)
        yield race(
            f"{checkpoint.name}, {kind}: output tokens a second of CPU, swarden / transformers",
            tokens=len(load) * NEW_TOKENS,
            pairs=pairs,
            notes=best._asdict(),
            swarden=partial(_ours, checkpoint, load),
            transformers=partial(_theirs, models[best.attention], load, best),
        )


def prompts(checkpoint: Checkpoint, families: int) -> Prompts:
    """Prompts of the same lengths; those of a family share a prefix."""
    random = Random(0)
    prefixes = checkpoint.prompts(families, SHARED_LEN, random)
    own_lens = [OWN_LENS[index % len(OWN_LENS)] for index in range(REQUESTS)]
    return [prefixes[index % families] + checkpoint.prompts(1, own, random)[0] for index, own in enumerate(own_lens)]


def _ours(checkpoint: Checkpoint, load: Prompts) -> Served:
    engine = create_engine(config_for(load, NEW_TOKENS), checkpoint=checkpoint.folder)
    return serve(engine, load, NEW_TOKENS)


def _theirs(model: Any, load: Prompts, setting: BaselineSetting) -> Served:
    """The time of a single request for one token is subtracted."""
    module = transformers()
    batching = module.ContinuousBatchingConfig(
        page_size=setting.page_size,
        num_blocks=2 * sum(num_pages(len(prompt) + NEW_TOKENS, setting.page_size) for prompt in load),
        max_batch_tokens=setting.max_batch_tokens,
        auto_switch_to_flash=False,
    )

    def answers(some: Prompts, new_tokens: int) -> list[list[int]]:
        limits = module.GenerationConfig(max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1)
        generated = model.generate_batch(
            some, generation_config=limits, continuous_batching_config=batching, warmup=False
        )
        return [list(answer.generated_tokens) for answer in generated.values()]

    before, _ = timed(lambda: answers(load[:1], 1))
    seconds, outputs = timed(lambda: answers(load, NEW_TOKENS))
    return Served(seconds - before, outputs)


# --- generation with prompt lookup against generation without it

PHRASE_LEN, REPEATS = 12, 6
DRAFTED_REQUESTS, DRAFTED_TOKENS = 8, 96
DRAFT_LEN = 4


def measure_speculation(checkpoint: Checkpoint, pairs: int) -> Iterator[Case]:
    """Serve the same requests with and without drafts.

    Each prompt repeats one phrase.  A model with random weights soon repeats its output too, like an answer that quotes
    its prompt.
    """
    load = [phrase * REPEATS for phrase in checkpoint.prompts(DRAFTED_REQUESTS, PHRASE_LEN, Random(0))]
    plain = config_for(load, DRAFTED_TOKENS + DRAFT_LEN)
    drafting = replace(plain, lookahead_tokens=DRAFT_LEN, draft_tokens=DRAFT_LEN)

    def served(config: EngineConfig, observer: EventLog | None = None) -> Served:
        engine = create_engine(config, checkpoint=checkpoint.folder, ports=Ports(observer=observer))
        return serve(engine, load, DRAFTED_TOKENS)

    log = EventLog()
    served(drafting, log)
    accepted = [event.num_accepted for event in log.take() if isinstance(event, Verified)]
    yield race(
        f"{checkpoint.name}: output tokens a second of CPU, with prompt lookup / without",
        tokens=DRAFTED_REQUESTS * DRAFTED_TOKENS,
        pairs=pairs,
        notes={"accepted": round(mean(accepted or [0]), 3), "of draft tokens": DRAFT_LEN},
        drafting=partial(served, drafting),
        plain=partial(served, plain),
    )


# --- a pair of engines linked over TCP on loopback against the same pair linked in process

SENT_REQUESTS, SENT_LEN, SENT_NEW_TOKENS = 8, 640, 4  # long prompts and short outputs: sending is most of the work
POLL_S = 0.001


def measure_disaggregation(checkpoint: Checkpoint, pairs: int) -> Iterator[Case]:
    """Step both pairs in one process, so that only the link differs; compare the sent bytes with the necessary ones."""
    load = checkpoint.prompts(SENT_REQUESTS, SENT_LEN, Random(0))
    full, window = config_for(load, SENT_NEW_TOKENS), read_spec(checkpoint.folder).sliding_window
    config = replace(full, swa_pages=full.full_pages, sliding_window=window)

    def linked(ends: Sequence[Link]) -> Pair:
        first, second = (Ports(link=end) for end in ends)
        return create_pair(config, checkpoint=checkpoint.folder, ports=(first, second))

    def over_tcp() -> Served:
        listener, secret = listener_on((LOOPBACK, 0)), new_secret()
        ends = TcpLink(listener, secret, config), TcpLink(listener.getsockname(), secret, config)
        while not all(end.is_connected for end in ends):
            sleep(POLL_S)
        served = serve(linked(ends), load, SENT_NEW_TOKENS)
        for end in ends:
            end.close()
        return served

    frames: list[int] = []

    def counted(send: Callable[[Message], None], message: Message) -> None:
        frames.extend(map(len, encode(message, Seal(b""))))
        send(message)

    ends = InProcessLink.pair()
    for end in ends:
        intercept(end, "send", counted)
    pair = linked(ends)
    serve(pair, load, SENT_NEW_TOKENS)
    yield race(
        f"{checkpoint.name}: prompt tokens a second of CPU, linked over TCP / within a process",
        tokens=SENT_REQUESTS * SENT_LEN,
        pairs=pairs,
        notes={
            "of the least bytes": round(sum(frames) / SENT_REQUESTS / _least_bytes(pair), 5),
            "MiB a request": round(sum(frames) / SENT_REQUESTS / 2**20, 2),
        },
        tcp=over_tcp,
        in_process=lambda: serve(linked(InProcessLink.pair()), load, SENT_NEW_TOKENS),
    )


def _least_bytes(pair: Pair) -> int:
    """The bytes of the pages of a prompt; in a windowed pool, of those that the token after the prompt reads."""
    memory = pair.prefill.memory
    least = 0
    for pool in memory.pools:
        first_read = 0 if pool.window is None else max(0, SENT_LEN + 1 - pool.window)
        pages = {position // PAGE_SIZE for position in range(first_read, SENT_LEN)}
        least += len(pages) * memory.store.page_bytes(pool.name)
    return least
