"""After any sequence of actions a match reads its own tokens, and every page can be freed."""

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


class Traffic:
    """A cache with a host tier, and its readers; an action that is impossible in the current state does nothing."""

    def __init__(self, config: EngineConfig) -> None:
        self.bench = HostBench(config)
        self.bench.store.ends_on_wait = config.host_policy == "write_back"
        self.readers: list[Request] = []

    @property
    def all_pages(self) -> dict[str, int]:
        return {pool.name: pool.num_pages for pool in self.bench.memory.pools}

    def compute(self, branch: int, length: int, *, slid: bool = False) -> None:
        self.bench.tier.make_room(dict.fromkeys(self.all_pages, 5))
        if all(count >= 5 for count in self.bench.device.free.values()):
            self.bench.insert(BRANCHES[branch][:length], slid=slid)

    def free_at_the_end(self) -> tuple[dict[str, int], dict[str, int]]:
        """Drain and flush; the free pages by pool, on the device and on the host."""
        for request in self.readers:
            self.bench.device.leave(request)
        self.bench.settle()
        self.bench.cache.flush()
        self.bench.tier.flush()
        return self.bench.device.free, self.bench.host_free()


def compute(traffic: Traffic, branch: int, length: int) -> None:
    traffic.compute(branch, length)


def compute_and_slide(traffic: Traffic, branch: int, length: int) -> None:
    traffic.compute(branch, length, slid=True)


def find(traffic: Traffic, branch: int, length: int) -> None:
    traffic.bench.tier.found(traffic.bench.match(BRANCHES[branch][:length]).node)


def read(traffic: Traffic, branch: int, length: int) -> None:
    if len(traffic.readers) < 2:
        traffic.readers.append(traffic.bench.device.start(BRANCHES[branch][:length]))


def stop_reading(traffic: Traffic, number: int, _: int) -> None:
    if number < len(traffic.readers):
        traffic.bench.device.leave(traffic.readers.pop(number))


def load(traffic: Traffic, branch: int, length: int) -> None:
    match = traffic.bench.match(BRANCHES[branch][:length])
    need = traffic.bench.tier.pages_to_load(match)
    if need and not traffic.bench.tier.load_under_way(match):
        with suppress(PoolExhausted):
            traffic.bench.tier.load(match, need)


def make_room(traffic: Traffic, _: int, count: int) -> None:
    traffic.bench.tier.make_room({pool: min(count, most) for pool, most in traffic.all_pages.items()})


def evict_windows(traffic: Traffic, _: int, count: int) -> None:
    traffic.bench.cache.evict({"swa": count} if traffic.bench.memory.window else {})


def copy(traffic: Traffic, branch: int, length: int) -> None:
    traffic.compute(branch, length)
    find(traffic, branch, length)
    traffic.bench.tier.back_up()


def demote(traffic: Traffic, branch: int, length: int) -> None:
    copy(traffic, branch, length)
    traffic.bench.settle()
    traffic.bench.tier.make_room(traffic.all_pages)


def back_up(traffic: Traffic, _: int, __: int) -> None:
    traffic.bench.tier.back_up()


def end(traffic: Traffic, number: int, _: int) -> None:
    traffic.bench.store.end(*list(traffic.bench.store.begun)[number : number + 1])


def end_all(traffic: Traffic, _: int, __: int) -> None:
    traffic.bench.settle()


def fail(traffic: Traffic, number: int, _: int) -> None:
    traffic.bench.store.fail(*list(traffic.bench.store.begun)[number : number + 1])


def poll(traffic: Traffic, _: int, __: int) -> None:
    traffic.bench.tier.poll()


def drop_copies(traffic: Traffic, number: int, _: int) -> None:
    if number == 3:
        traffic.bench.tier.flush()


ACTIONS: Sequence[Callable[[Traffic, int, int], None]] = [
    compute,
    compute_and_slide,
    find,
    read,
    stop_reading,
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
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.sampled_from(LENGTHS)), min_size=12, max_size=40
)
BY_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def misread(bench: HostBench) -> list[tuple[int, dict[str, list[int]]]]:
    """Each branch whose match reads other tokens than its own, with the content that it reads."""
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
    traffic = Traffic(config)

    wrong = []
    for action, first, second in program:
        action(traffic, first, second)
        wrong += misread(traffic.bench)

    assert wrong == []


@BY_CONFIG
@settings(derandomize=True, database=None, deadline=None, max_examples=60)
@given(program=PROGRAMS)
def test_every_page_on_device_and_host_is_free_at_the_end(config, program):
    traffic = Traffic(config)
    for action, first, second in program:
        action(traffic, first, second)

    on_host = {pool.name: pool.num_pages for pool in config.host_pools}
    assert traffic.free_at_the_end() == (all_pages(config), on_host)
