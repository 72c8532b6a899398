"""Tokens per second of our engine against transformers' own continuous batching: one process, one checkpoint.

Both serve the same requests greedily on one CPU thread, each to its last token.  The baseline runs with its best
setting of `SWEEP`, after a warm-up request.  The time of a single request for one token is subtracted from its time.
"""

from collections.abc import Iterator
from functools import partial
from itertools import product
from random import Random
from typing import Any, NamedTuple

from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.units import num_pages
from swarden.harness.bench.checkpoints import Checkpoint, Prompts, Served, config_for, race, serve, transformers
from swarden.harness.bench.timing import Measured, timed

HEAD = "our engine against the continuous batching of transformers:"
REQUESTS = 32
FAMILIES = 4  # of requests with a common prefix
SHARED_LEN = 96
OWN_LENS = range(16, 48)
NEW_TOKENS = 32


class BaselineSetting(NamedTuple):
    """The settings of the baseline: attention, tokens per block, most tokens per batch."""

    attention: str
    page_size: int
    max_batch_tokens: int


SWEEP = [BaselineSetting(*values) for values in product(("sdpa", "paged|eager"), (16, 256), (64, 256, 1024))]
SWEPT_REQUESTS = 16  # of the load; the best setting then runs all of it


def measure(checkpoint: Checkpoint, *, pairs: int) -> Iterator[Measured]:
    """Race both engines without shared prefixes and with them."""
    models = {
        kind: transformers().Gemma3ForCausalLM.from_pretrained(checkpoint.directory, attn_implementation=kind).eval()
        for kind in {setting.attention for setting in SWEEP}
    }
    for is_shared, case in {False: "no shared prefixes", True: "shared prefixes"}.items():
        load = prompts(checkpoint, is_shared=is_shared)
        for model in models.values():
            _theirs(model, load[:1], SWEEP[0])
        _ours(checkpoint, load[:1])
        sweep = {setting: _theirs(models[setting.attention], load[:SWEPT_REQUESTS], setting) for setting in SWEEP}
        best = min(sweep, key=lambda setting: sweep[setting].seconds)
        theirs = partial(_theirs, models[best.attention], load, best)
        both = race(partial(_ours, checkpoint, load), theirs, tokens=len(load) * NEW_TOKENS, pairs=pairs)
        ratio = "tokens_per_second_ratio" + ("_shared" if is_shared else "")
        name = checkpoint.name + (" shared" if is_shared else "")
        yield both.measured(
            f"{checkpoint.name}, {case}",
            f"output tokens a second of CPU; theirs best with {best.attention}, blocks of {best.page_size}, "
            f"{best.max_batch_tokens} tokens a batch",
            {ratio: {checkpoint.name: both.speeds.ratio}, "tokens_per_second": {name: both.speeds.sides}},
        )


def prompts(checkpoint: Checkpoint, *, is_shared: bool) -> list[list[int]]:
    """Prompts with or without common prefixes, of the same lengths."""
    random = Random(0)
    prefixes = [checkpoint.tokens(random, SHARED_LEN) for _ in range(FAMILIES if is_shared else REQUESTS)]
    return [
        prefixes[index % len(prefixes)] + checkpoint.tokens(random, OWN_LENS[index % len(OWN_LENS)])
        for index in range(REQUESTS)
    ]


def _ours(checkpoint: Checkpoint, load: Prompts) -> Served:
    engine = create_engine(config_for(load, NEW_TOKENS), checkpoint=checkpoint.directory)
    return serve(engine, load, NEW_TOKENS)


def _theirs(model: Any, load: Prompts, setting: BaselineSetting) -> Served:
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
            [list(prompt) for prompt in some],
            generation_config=limits,
            continuous_batching_config=batching,
            warmup=False,
        )
        return [list(answer.generated_tokens) for answer in generated.values()]

    before, _ = timed(lambda: answers(load[:1], 1))
    seconds, outputs = timed(lambda: answers(load, NEW_TOKENS))
    return Served(seconds - before, outputs)
