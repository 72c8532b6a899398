"""Whatever goes where in whatever order: a match reads its own tokens, and in the end every page is free."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_under_test.config import EngineConfig
from engine_under_test.errors import PoolExhausted
from engine_under_test.request import Request
from tests.engine_under_test.builders import all_pages
from tests.engine_under_test.host.bench import (
    HOSTED,
    HOSTED_FULL_ONLY,
    HOSTED_SWA_ONLY,
    SELECTIVE,
    WRITE_BACK,
    HostBench,
)

TRUNK = list(range(100, 120))
BRANCHES = [TRUNK, [*TRUNK[:8], *range(200, 212)], [*TRUNK[:12], *range(300, 308)], list(range(400, 420))]
SMALL: dict[str, Any] = {"full_pages": 12, "host_full_pages": 9}
CONFIGS = {
    "write-through": replace(HOSTED, **SMALL, host_swa_pages=5),
    "selective": replace(SELECTIVE, **SMALL, host_swa_pages=5),
    "write-back": replace(WRITE_BACK, **SMALL, host_swa_pages=5),
    "full only": replace(HOSTED_FULL_ONLY, **SMALL),
    "swa only": replace(HOSTED_SWA_ONLY, host_swa_pages=6),
}


class Doing:
    """A cache and its host, and who reads there; what cannot happen to them just now does not."""

    def __init__(self, config: EngineConfig) -> None:
        self.bench = HostBench(config)
        self.bench.hand.is_patient = config.host_policy == "write_back"
        self.readers: list[Request] = []

    @property
    def all_pages(self) -> dict[str, int]:
        return {pool.name: pool.num_pages for pool in self.bench.memory.pools}

    def compute(self, branch: int, length: int, *, slid: bool = False) -> None:
        self.bench.tier.make_room(dict.fromkeys(self.all_pages, 5))
        if all(count >= 5 for count in self.bench.device.free.values()):
            self.bench.cached(BRANCHES[branch][:length], slid=slid)

    def emptied(self) -> tuple[dict[str, int], dict[str, int]]:
        """The pages that are free on either side when all has ended and nothing is cached any more."""
        for request in self.readers:
            self.bench.device.leave(request)
        self.bench.settle()
        self.bench.cache.flush()
        self.bench.tier.flush()
        return self.bench.device.free, self.bench.host_free()


def compute(doing: Doing, branch: int, length: int) -> None:
    doing.compute(branch, length)


def compute_and_slide(doing: Doing, branch: int, length: int) -> None:
    doing.compute(branch, length, slid=True)


def find(doing: Doing, branch: int, length: int) -> None:
    doing.bench.tier.found(doing.bench.match(BRANCHES[branch][:length]).node)


def read(doing: Doing, branch: int, length: int) -> None:
    if len(doing.readers) < 2:
        doing.readers.append(doing.bench.device.start(BRANCHES[branch][:length]))


def read_no_more(doing: Doing, number: int, _: int) -> None:
    if number < len(doing.readers):
        doing.bench.device.leave(doing.readers.pop(number))


def load(doing: Doing, branch: int, length: int) -> None:
    match = doing.bench.match(BRANCHES[branch][:length])
    need = doing.bench.tier.pages_to_load(match)
    if need and not doing.bench.tier.load_under_way(match):
        with suppress(PoolExhausted):
            doing.bench.tier.load(match, need)


def make_room(doing: Doing, _: int, count: int) -> None:
    doing.bench.tier.make_room({pool: min(count, most) for pool, most in doing.all_pages.items()})


def evict_windows(doing: Doing, _: int, count: int) -> None:
    doing.bench.cache.evict({"swa": count} if doing.bench.memory.window else {})


def copy(doing: Doing, branch: int, length: int) -> None:
    doing.compute(branch, length)
    find(doing, branch, length)
    doing.bench.tier.back_up()


def demote(doing: Doing, branch: int, length: int) -> None:
    copy(doing, branch, length)
    doing.bench.settle()
    doing.bench.tier.make_room(doing.all_pages)


def back_up(doing: Doing, _: int, __: int) -> None:
    doing.bench.tier.back_up()


def end(doing: Doing, number: int, _: int) -> None:
    doing.bench.hand.end(*list(doing.bench.hand.begun)[number : number + 1])


def end_all(doing: Doing, _: int, __: int) -> None:
    doing.bench.settle()


def fail(doing: Doing, number: int, _: int) -> None:
    doing.bench.hand.fail(*list(doing.bench.hand.begun)[number : number + 1])


def poll(doing: Doing, _: int, __: int) -> None:
    doing.bench.tier.poll()


def drop_copies(doing: Doing, number: int, _: int) -> None:
    if number == 3:
        doing.bench.tier.flush()


DEEDS: Sequence[Callable[[Doing, int, int], None]] = [
    compute,
    compute_and_slide,
    find,
    read,
    read_no_more,
    load,
    make_room,
    evict_windows,
    copy,
    demote,
    demote,
    load,
    back_up,
    end,
    end_all,
    fail,
    poll,
    drop_copies,
]
LENGTHS = (5, 9, 13, 17, 20)
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(DEEDS), st.integers(0, 3), st.sampled_from(LENGTHS)), min_size=12, max_size=40
)
BY_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def misread(bench: HostBench) -> list[tuple[int, dict[str, list[int]]]]:
    """By branch, what a reader of it finds in place of its own tokens."""
    wrong = []
    for branch, tokens in enumerate(BRANCHES):
        length, content = bench.match([*tokens, 1]).length, bench.content([*tokens, 1])
        lens = bench.tree.covered_lens(length)
        own = {pool.name: tokens[length - one : length] for pool, one in zip(bench.memory.pools, lens, strict=True)}
        wrong += [(branch, content)] if content != own else []
    return wrong


@BY_CONFIG
@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(program=PROGRAMS)
def test_a_match_reads_its_own_tokens(config, program):
    doing = Doing(config)

    wrong = []
    for deed, first, second in program:
        deed(doing, first, second)
        wrong += misread(doing.bench)

    assert wrong == []


@BY_CONFIG
@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(program=PROGRAMS)
def test_in_the_end_every_page_is_free_on_either_side(config, program):
    doing = Doing(config)
    for deed, first, second in program:
        deed(doing, first, second)

    on_host = {pool.name: pool.num_pages for pool in config.host_pools}
    assert doing.emptied() == (all_pages(config), on_host)
