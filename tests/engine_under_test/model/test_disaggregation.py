"""A model on a pair of engines gives the outputs of one engine, and its KV is transferred bit for bit."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.components import Component
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine, create_engine
from swarden.engine_under_test.messages import Message
from swarden.engine_under_test.model.checkpoint import model_name
from swarden.engine_under_test.model.files import FULL, SLIDING
from swarden.engine_under_test.pair import InProcessLink, Pair, create_pair
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.request import Generation
from swarden.engine_under_test.sampling import SamplingParams
from swarden.invariants.events import SetAside, TakenOver
from tests.engine_under_test.builders import MOST_STEPS, EventLog
from tests.engine_under_test.disaggregation.framed import frame_of, messages_of
from tests.engine_under_test.model.checkpoints import some_tokens, write_checkpoint
from tests.engine_under_test.model.device import DEVICE

CLOSE = 1e-10
SHARED = some_tokens(21, seed=1).tolist()
PROMPTS = [SHARED + some_tokens(3 + 9 * number, seed=10 + number).tolist() for number in range(4)]
CONFIG = EngineConfig(
    page_size=4, full_pages=60, max_running_requests=3, max_context_len=128, chunk_len=16, poison_freed_pages=True
)
GREEDY = SamplingParams(10, return_logits=True)
DRAWN = SamplingParams(10, temperature=0.8, top_p=0.9, top_k=40, seed=3, return_logits=True)
MODELS = {
    "gemma3": ("gemma3", {}),
    "gpt-oss": ("gpt-oss", {}),
    "qwen3, full only": (
        "qwen3",
        {"layer_types": [FULL] * 3, "use_sliding_window": False, "max_window_layers": 3, "sliding_window": None},
    ),
    "mistral, swa only": ("mistral", {}),
    "recurrent-gemma, swa and states": ("recurrent-gemma", {}),
    "bamba, full and states": ("bamba", {}),
    "gemma2, a window of several pages": ("gemma2", {"sliding_window": 15, "layer_types": [SLIDING, FULL, SLIDING]}),
}


@pytest.fixture(scope="module", params=MODELS)
def checkpoint(request, tmp_path_factory) -> Path:
    family, changes = MODELS[request.param]
    directory: Path = tmp_path_factory.mktemp(family)
    write_checkpoint(directory, family, **changes)
    return directory


class Framed:
    """One end of a link that encodes and decodes each message."""

    def __init__(self, steady: InProcessLink) -> None:
        self.receive, self.reject, self.lag_ms = steady.receive, steady.reject, steady.lag_ms
        self._steady = steady

    def send(self, message: Message) -> None:
        [decoded] = messages_of(frame_of(message))
        self._steady.send(decoded)

    @property
    def is_clear(self) -> bool:
        return self._steady.is_clear


def pair_of(checkpoint: Path, config: EngineConfig = CONFIG, *, log: EventLog | None = None) -> Pair:
    """A pair with an observer on the decode side, over a link that encodes each message."""
    here, there = map(Framed, InProcessLink.pair())
    ports = (Ports(link=here), Ports(link=there, observer=log))
    return create_pair(config, checkpoint=checkpoint, device=str(DEVICE), dtype="float64", ports=ports)


def expected(checkpoint: Path, sampling: SamplingParams) -> list[Generation]:
    """The outputs of one engine."""
    return create_engine(CONFIG, checkpoint=checkpoint, device=str(DEVICE), dtype="float64").generate(PROMPTS, sampling)


def expect_same(answers: Sequence[Generation], wanted: Sequence[Generation]) -> None:
    """The same tokens, and the same logits at each position that both computed, which include all outputs."""
    for answer, one, prompt in zip(answers, wanted, PROMPTS, strict=True):
        assert (answer.token_ids, answer.finish_reason) == (one.token_ids, "length")
        both = answer.logits.keys() & one.logits.keys()
        assert both >= set(range(len(prompt) - 1, len(prompt) + len(one.token_ids) - 1))
        for position in both:
            torch.testing.assert_close(answer.logits[position], one.logits[position], atol=CLOSE, rtol=0)


def expect_empty(pair: Pair) -> None:
    for engine in (pair.prefill, pair.decode):
        engine.flush()
        ledgers = (*engine.memory.ledgers.ledgers, engine.memory.table.rows)
        assert [(ledger.name, ledger.num_free) for ledger in ledgers] == [
            (ledger.name, ledger.capacity) for ledger in ledgers
        ]


def bits_of(engine: Engine, record: KVRecord, pool: Component, length: int) -> torch.Tensor:
    """What a request continues from after `length` positions, in one pool: KV, or a state; (slots, ...) int64."""
    memory = engine.memory
    page_dim, page_size = memory.store.page_dim(pool.name), memory.page_size
    pages = memory.ledgers.pages_of(pool.name, record.handles)
    positions = [length - 1] if pool.slots else range(pool.needed_from(length), length)
    used, slots_per_page = [pages[position // page_size] for position in positions], pool.slots or page_size
    assert all(used), f"{pool.name}: no pages for some of {positions}: {pages}"
    kv = memory.store.kv(pool.name).movedim((page_dim, page_dim + 1), (0, 1))
    return kv[used, [position % slots_per_page for position in positions]].contiguous().view(torch.int64)


def until_taken_over(pair: Pair, log: EventLog) -> None:
    """Step until the decode side has the whole prompt, while the prefill side still holds it."""
    for _ in range(MOST_STEPS):
        if log.of(TakenOver):
            return
        pair.step()
    raise AssertionError(f"no transfer was complete in {MOST_STEPS} steps")


def test_sides_with_different_weights_refuse_each_other_with_both_named(tmp_path):
    """One weight of one layer differs; the page layouts are equal."""
    here, there = tmp_path / "here", tmp_path / "there"
    write_checkpoint(here, "gemma3")
    shutil.copytree(here, there)
    tensors = load_file(there / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] += 1
    save_file(tensors, there / "model.safetensors")
    ends = zip(("prefill", "decode"), (here, there), InProcessLink.pair(), strict=True)
    engines = [
        create_engine(replace(CONFIG, role=role), checkpoint=directory, ports=Ports(link=link))
        for role, directory, link in ends
    ]

    [generation] = Pair(*engines).generate(PROMPTS[:1], GREEDY)

    reason = str(generation.finish_reason)
    assert "the sides differ: " in reason
    assert all(f"model {model_name(directory)}, " in reason for directory in (here, there))


@pytest.mark.parametrize("length", [3, 24, 33], ids=["less than a window", "whole pages", "part of a page"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_kv_is_equal_bit_for_bit_on_both_sides(checkpoint, page_size, length):
    log = EventLog()
    pair = pair_of(checkpoint, replace(CONFIG, page_size=page_size), log=log)
    pair.generate([SHARED[::-1]], GREEDY)
    log.events.clear()

    pair.submit((SHARED + PROMPTS[3])[:length], GREEDY)
    until_taken_over(pair, log)

    [held], [taken] = pair.prefill.scheduler.custody.other_side.records, pair.decode.scheduler.custody.records
    for pool in pair.decode.memory.pools:
        here, there = bits_of(pair.decode, taken, pool, length), bits_of(pair.prefill, held, pool, length)
        assert torch.equal(here, there)
        assert here.numel() == 0 or here.flatten(1).any(1).all(), "a slot was never written"


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_pair_outputs_equal_those_of_one_engine(checkpoint, sampling):
    pair = pair_of(checkpoint)

    answers = pair.generate(PROMPTS, sampling)

    expect_same(answers, expected(checkpoint, sampling))
    expect_empty(pair)


def test_swapped_out_requests_give_the_same_outputs(checkpoint):
    log = EventLog()
    pair = pair_of(checkpoint, log=log)
    answers = {pair.submit(prompt, GREEDY): Generation() for prompt in PROMPTS}
    pauses = {9: pair.decode.pause, 11: pair.decode.resume}

    for step in range(MOST_STEPS):
        for output in pair.step():
            answers[output.request_id].add(output)
        pauses.get(step, lambda: None)()

    assert len(log.of(SetAside)) > 1
    expect_same(list(answers.values()), expected(checkpoint, GREEDY))
    expect_empty(pair)
