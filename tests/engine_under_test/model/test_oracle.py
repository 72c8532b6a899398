"""Whatever the engine does to a request on its way, its tokens and logits are those of transformers.

Each run forces the way to be a long one: chunks, mixed batches, prefix hits, windows that were given up and computed
again, retraction.  That it was is asserted before the outputs are.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch

from engine_under_test.config import EngineConfig
from engine_under_test.engine import create_engine
from engine_under_test.events import Event, Launched, Paused, Recovered, Retracted, Tombstoned
from engine_under_test.model.tiny import TINY
from engine_under_test.ports import Ports
from engine_under_test.request import Generation
from engine_under_test.sampling import SamplingParams
from tests.engine_under_test.builders import Heard, hold, let_go
from tests.engine_under_test.model.checkpoints import oracle_logits, some_tokens, write_checkpoint

WINDOWS, PAGES, CHUNKS = (8, 13), (1, 4, 16), (3, 7, 64)
NEW_TOKENS = 20
TIE = 1e-4  # the likeliest token is not certain where the next one is closer than this
CLOSE = 1e-4
SHARED = some_tokens(26, seed=1).tolist()
MOST_STEPS = 500
PROMPTS = [SHARED + some_tokens(8 + 3 * number, seed=10 + number).tolist() for number in range(4)]
STRANGER = some_tokens(40, seed=20).tolist()


class Told(NamedTuple):
    """What transformers says to a prompt: the tokens it generates, and the logits at every position up to the last."""

    prompt: list[int]
    token_ids: list[int]
    logits: torch.Tensor


class Oracle(NamedTuple):
    """A checkpoint, the window of its sliding layers (None: no layer slides), and what is told of each prompt."""

    directory: str
    window: int | None
    told: list[Told]


@pytest.fixture(
    scope="module",
    params=[
        (family, window)
        for family, values in TINY.items()
        for window in (WINDOWS if "sliding_window" in values else (None,))
    ],
    ids=lambda value: f"{value[0]}-window-{value[1]}",
)
def oracle(request, tmp_path_factory) -> Oracle:
    family, window = request.param
    directory = tmp_path_factory.mktemp(family)
    model = write_checkpoint(directory, family, **({} if window is None else {"sliding_window": window}))
    return Oracle(str(directory), window, [told_by(model, prompt) for prompt in (*PROMPTS, STRANGER)])


def told_by(model: Any, prompt: list[int]) -> Told:
    with torch.inference_mode():
        generated = model.generate(
            torch.tensor([prompt]), max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0
        )[0]
    return Told(prompt, generated[len(prompt) :].tolist(), oracle_logits(model, generated[:-1]))


class Journey:
    """An engine on a checkpoint, and every request that it served by the prompt's number."""

    def __init__(self, oracle: Oracle, config: EngineConfig) -> None:
        self.heard = Heard()
        self.engine = create_engine(config, checkpoint=oracle.directory, ports=Ports(observer=self.heard))
        self.served: list[tuple[int, Generation]] = []
        self._prompts = [told.prompt for told in oracle.told]
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
        raise AssertionError(f"not reached in {MOST_STEPS} steps")

    def run(self) -> None:
        self.until(lambda: not self.engine.has_work)

    def squeezed(self, pool: str, is_reached: Callable[[], bool]) -> None:
        """Step while a neighbour takes every page of a pool that is free, until something has come of it."""
        memory, pages = self.engine.memory, list[int]()

        def has_come() -> bool:
            pages.extend(hold(memory, pool, leaving=0))
            return is_reached()

        self.until(has_come)
        let_go(memory, pool, pages)

    def retract(self) -> None:
        """For want of pages; where every layer slides nobody ever wants more than it gives back, and a pause serves."""
        anchor = self.engine.memory.pools[0]
        if anchor.window is None:
            self.squeezed(anchor.name, lambda: self.count(Retracted) > 0)
        else:
            self.engine.pause()
            self.step()
            self.engine.resume()

    def count(self, kind: type[Event]) -> int:
        return len(self.heard.of(kind))

    @property
    def mixed_passes(self) -> int:
        """Passes with a chunk of several tokens and another request's single one."""
        lengths = [{min(2, end - start) for _, start, end in launched.entries} for launched in self.heard.of(Launched)]
        return lengths.count({1, 2})


def journey(oracle: Oracle, config: EngineConfig) -> Journey:
    """A wave that is retracted on its way; a stranger for whom windows are given up; the wave again."""
    way = Journey(oracle, config)
    way.submit(0, 1, 2, 3)
    way.until(lambda: len(way.engine.scheduler.running) > 1)
    way.retract()
    way.run()
    way.submit(len(PROMPTS))
    for pool in way.engine.memory.pools:
        if pool.window is not None:
            way.squeezed(pool.name, lambda: not way.engine.has_work)
    way.run()
    way.submit(0, 1, 2, 3)
    way.run()
    return way


def config_of(window: int | None, page_size: int, chunk_len: int) -> EngineConfig:
    return EngineConfig(
        page_size=page_size,
        full_pages=400 // page_size,
        swa_pages=400 // page_size if window else 0,
        sliding_window=window,
        chunk_len=chunk_len,
        max_context_len=256,
        mixed_batches=True,
        poison_freed_pages=True,
    )


def first_difference(told: Told, generation: Generation) -> int:
    """How many tokens are told and generated alike."""
    pairs = zip(told.token_ids, generation.token_ids, strict=True)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), len(told.token_ids))


def is_tie(logits: torch.Tensor) -> bool:
    first, second = logits.topk(2).values.tolist()
    return bool(first - second < TIE)


@pytest.mark.parametrize(("page_size", "chunk_len"), list(product(PAGES, CHUNKS)))
def test_tokens_and_logits_are_those_of_transformers(oracle, page_size, chunk_len):
    way = journey(oracle, config_of(oracle.window, page_size, chunk_len))

    assert min(way.count(Retracted) + way.count(Paused), way.mixed_passes) > 0
    assert oracle.window is None or min(way.count(Tombstoned), way.count(Recovered)) > 0
    assert max(generation.cached_tokens for _, generation in way.served) >= page_size
    for number, generation in way.served:
        told = oracle.told[number]
        same = first_difference(told, generation)
        last = len(told.prompt) + same - 1
        assert same == NEW_TOKENS or is_tie(told.logits[last])
        judged = {position: row for position, row in generation.logits.items() if position <= last}
        assert set(judged) >= set(range(len(told.prompt) - 1, len(told.prompt) + max(1, same) - 1))
        for position, row in judged.items():
            torch.testing.assert_close(row, told.logits[position], atol=CLOSE, rtol=0)
