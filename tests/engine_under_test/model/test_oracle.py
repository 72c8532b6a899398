"""Tokens and logits of the engine equal those of transformers, whatever the scheduler does.

Each run forces chunks, mixed batches, prefix hits, tombstoned and recomputed windows, and retraction.  These are
asserted before the outputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.model.checkpoint import read_spec
from swarden.engine_under_test.model.runner import fitted
from swarden.engine_under_test.model.tiny import RECURRENT, TINY
from swarden.engine_under_test.ports import Ports, Proposer, Wanted
from swarden.engine_under_test.request import Generation
from swarden.engine_under_test.sampling import SamplingParams
from swarden.invariants.events import Event, Launched, LoadPlanned, Paused, Recovered, Retracted, Tombstoned, Verified
from tests.engine_under_test.builders import EventLog, hold, release_held
from tests.engine_under_test.model.checkpoints import oracle_logits, some_tokens, write_checkpoint

WINDOW_KEYS = ("sliding_window", "attention_window_size")
WINDOWS, PAGES_AND_CHUNKS = (8, 13), ((1, 64), (4, 7), (16, 3))
NEW_TOKENS = 20
TIE = 1e-4  # with a smaller distance between the two likeliest tokens either is right
CLOSE = 1e-4
SHARED = some_tokens(26, seed=1).tolist()
MOST_STEPS = 500
PROMPTS = [SHARED + some_tokens(8 + 3 * number, seed=10 + number).tolist() for number in range(4)]
UNRELATED = some_tokens(40, seed=20).tolist()


class Expected(NamedTuple):
    """The output of transformers: the tokens that it generates, and the logits at every position but the last."""

    prompt: list[int]
    token_ids: list[int]
    logits: torch.Tensor


class Oracle(NamedTuple):
    """A checkpoint, the window of its sliding layers (None: it has none), and the expected output of each prompt.

    A recurrent one has a pool of states.
    """

    directory: str
    window: int | None
    is_recurrent: bool
    expected: list[Expected]


@pytest.fixture(
    scope="module",
    params=[
        (family, key, window if key else None)
        for (family, values), window in zip(TINY.items(), cycle(WINDOWS))
        for key in [next((key for key in WINDOW_KEYS if key in values), None)]
    ],
    ids=lambda value: f"{value[0]}-window-{value[2]}",
)
def oracle(request, tmp_path_factory) -> Oracle:
    family, key, window = request.param
    directory = tmp_path_factory.mktemp(family)
    model = write_checkpoint(directory, family, **({key: window} if key else {}))
    expected = [expected_of(model, prompt) for prompt in (*PROMPTS, UNRELATED)]
    return Oracle(str(directory), window, family in RECURRENT, expected)


def expected_of(model: Any, prompt: list[int]) -> Expected:
    with torch.inference_mode():
        generated = model.generate(
            torch.tensor([prompt]), max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0
        )[0]
    return Expected(prompt, generated[len(prompt) :].tolist(), oracle_logits(model, generated[:-1]))


class Run:
    """An engine with a checkpoint, and its requests with the number of their prompt."""

    def __init__(self, oracle: Oracle, config: EngineConfig, proposer: Proposer | None = None) -> None:
        self.log = EventLog()
        ports = Ports(observer=self.log, proposer=proposer)
        self.engine = create_engine(config, checkpoint=oracle.directory, ports=ports)
        self.served: list[tuple[int, Generation]] = []
        self._prompts = [expected.prompt for expected in oracle.expected]
        self._alive: dict[int, Generation] = {}

    def submit(self, *numbers: int) -> None:
        for number in numbers:
            request = self.engine.submit(self._prompts[number], SamplingParams(NEW_TOKENS, return_logits=True))
            self._alive[request] = Generation()
            self.served.append((number, self._alive[request]))

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            for output in self.engine.step():
                self._alive[output.request_id].add(output)

    def until(self, is_reached: Callable[[], bool]) -> None:
        for _ in range(MOST_STEPS):
            if is_reached():
                return
            self.step()
        raise AssertionError(f"the state was not reached in {MOST_STEPS} steps")

    def run(self) -> None:
        self.until(lambda: not self.engine.has_work)

    def squeezed(self, pool: str, is_reached: Callable[[], bool]) -> None:
        """Step while a neighbour takes every free page of a pool, until the state is reached."""
        memory, pages = self.engine.memory, list[int]()

        def is_reached_without_pages() -> bool:
            pages.extend(hold(memory, pool, leaving=0))
            return is_reached()

        self.until(is_reached_without_pages)
        release_held(memory, pool, pages)

    def retract(self) -> None:
        """Retract a request by a lack of pages, or by a pause: with sliding layers only, no request lacks pages."""
        anchor = self.engine.memory.pools[0]
        if anchor.window is None:
            self.squeezed(anchor.name, lambda: self.count(Retracted) > 0)
        else:
            self.engine.pause()
            self.step()
            self.engine.resume()

    def count(self, kind: type[Event]) -> int:
        return len(self.log.of(kind))

    @property
    def mixed_passes(self) -> int:
        """The number of passes with a chunk of one request and a decode of another."""
        lengths = [{min(2, end - start) for _, start, end in launched.entries} for launched in self.log.of(Launched)]
        return lengths.count({1, 2})


class PartlyRight:
    """Proposes the output of transformers, with a wrong token in some drafts."""

    def __init__(self, oracle: Oracle) -> None:
        self._outputs = [[*one.prompt, *one.token_ids] for one in oracle.expected]

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        return [self._drafts(list(request.tokens), request.most) for request in wanted]

    def forget(self, request_id: int) -> None:
        """There is nothing to forget: the proposer keeps no state of requests."""

    def _drafts(self, tokens: list[int], most: int) -> list[int]:
        for output in self._outputs:
            if output[: len(tokens)] == tokens:
                drafts = output[len(tokens) : len(tokens) + most]
                wrong = len(tokens) % 4  # of at most 3 drafts: in each fourth step all are right
                return [token + (index == wrong) for index, token in enumerate(drafts)]
        return []


def served(oracle: Oracle, config: EngineConfig, proposer: Proposer | None = None) -> Run:
    """Requests that are retracted; one with another prefix that evicts windows; the first requests again."""
    run = Run(oracle, config, proposer)
    run.submit(0, 1, 2, 3)
    run.until(lambda: len(run.engine.scheduler.running) > 1)
    run.retract()
    run.run()
    run.submit(len(PROMPTS))
    for pool in run.engine.memory.pools:
        if pool.window is not None:
            run.squeezed(pool.name, lambda: not run.engine.has_work)
    run.run()
    run.submit(0, 1, 2, 3)
    run.run()
    return run


def config_of(oracle: Oracle, page_size: int, chunk_len: int) -> EngineConfig:
    return EngineConfig(
        page_size=page_size,
        full_pages=400 // page_size,
        swa_pages=400 // page_size if oracle.window else 0,
        sliding_window=oracle.window,
        state_pages=400 // page_size if oracle.is_recurrent else 0,
        state_interval=16,
        chunk_len=chunk_len,
        max_context_len=256,
        mixed_batches=True,
        poison_freed_pages=True,
    )


def first_difference(expected: Expected, generation: Generation) -> int:
    """The number of equal tokens before the first difference."""
    pairs = zip(expected.token_ids, generation.token_ids, strict=True)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), len(expected.token_ids))


def is_tie(logits: torch.Tensor) -> bool:
    first, second = logits.topk(2).values.tolist()
    return bool(first - second < TIE)


@pytest.mark.parametrize(("page_size", "chunk_len"), PAGES_AND_CHUNKS)
def test_tokens_and_logits_equal_those_of_transformers(oracle, page_size, chunk_len):
    run = served(oracle, config_of(oracle, page_size, chunk_len))

    assert min(run.count(Retracted) + run.count(Paused), run.mixed_passes) > 0
    assert oracle.window is None or min(run.count(Tombstoned), run.count(Recovered)) > 0
    assert max(generation.cached_tokens for _, generation in run.served) >= page_size
    expect_those_of_transformers(run, oracle)


def test_tokens_and_logits_with_drafts_equal_those_of_transformers(oracle):
    config = replace(config_of(oracle, 4, 7), draft_tokens=3, lookahead_tokens=3, state_slots=5)

    run = served(oracle, config, PartlyRight(oracle))

    assert {verified.num_accepted for verified in run.log.of(Verified)} == {0, 1, 2, 3}
    expect_those_of_transformers(run, oracle)


def test_tokens_and_logits_with_restored_pages_equal_those_of_transformers(oracle):
    config = fitted(config_of(oracle, 4, 7), read_spec(Path(oracle.directory)), source="config.json")
    sizes = {f"host_{name}": 2 * getattr(config, name) for name in ("full_pages", "swa_pages", "state_pages")}

    run = served(oracle, replace(config, **sizes, load_back_threshold=1))

    assert run.count(LoadPlanned) > 0
    expect_those_of_transformers(run, oracle)


def expect_those_of_transformers(run: Run, oracle: Oracle) -> None:
    for number, generation in run.served:
        expected = oracle.expected[number]
        same = first_difference(expected, generation)
        last = len(expected.prompt) + same - 1
        assert same == NEW_TOKENS or is_tie(expected.logits[last])
        judged = {position: row for position, row in generation.logits.items() if position <= last}
        assert set(judged) >= set(range(len(expected.prompt) - 1, len(expected.prompt) + max(1, same) - 1))
        for position, row in judged.items():
            torch.testing.assert_close(row, expected.logits[position], atol=CLOSE, rtol=0)
