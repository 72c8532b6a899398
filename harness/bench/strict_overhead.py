"""The cost of each level of the strict check: the same traffic with and without it, in alternating blocks of steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.strict import CENSUS
from swarden.harness.bench.load import PAGES, ConstantLoad, LoadedEngine, config_of
from swarden.harness.engines.own.live import live_of
from swarden.harness.strict.census import interval_of
from swarden.harness.strict.checker import StrictChecker, audit, census, sums
from swarden.invariants.events import Event


def content_at(share: float) -> Callable[..., StrictChecker]:
    """The level content, which checks this share of the slots."""
    return lambda *, reports: StrictChecker(lambda live: live.content(live, share), reports=reports)


CHECKERS: dict[str, Callable[..., StrictChecker]] = {
    "sums": sums,
    "audit": audit,
    CENSUS: census,
    **{f"content {share}": content_at(share) for share in (0.01, 0.1, 1)},
}
CPU_SECONDS = 10.0  # per level
BLOCK_STEPS = 16  # per engine at a time, because reading the clock has a cost
LEAST_BLOCKS = 4
WARM_STEPS = 100
THOUSAND_PAGES = 1000


@dataclass(frozen=True)
class Overhead:
    """The CPU time of a level: its share of the step time, and microseconds per step.

    `events_us` is the cost of emitting events, which is no cost of the check.  The figures are medians over blocks of
    the same steps, because other load of the machine disturbs some blocks; a block has one walk of the census at least.
    """

    level: str
    share: float
    check_us: float
    events_us: float
    step_us: float
    steps: int
    cpu_seconds: float
    pages: int

    @property
    def ms_per_thousand_pages(self) -> float:
        return self.check_us / 1000 / (self.pages / THOUSAND_PAGES)


class Block(NamedTuple):
    """Seconds of CPU of the three engines for the same steps."""

    plain: float
    observed: float
    checked: float


class IdleObserver:
    """An observer that ignores all events."""

    def notice(self, event: Event) -> None:
        pass


def measure(
    level: str,
    *,
    cpu_seconds: float = CPU_SECONDS,
    config: EngineConfig | None = None,
    load: ConstantLoad | None = None,
) -> Overhead:
    """Serve with a level, with an idle observer and without an observer, in turns, for `cpu_seconds` of the level."""
    load = load or ConstantLoad()
    config = config or config_of(PAGES, load.running)
    observers = (None, IdleObserver(), CHECKERS[level](reports=False))
    plain, observed, checked = all_served = [LoadedEngine(config, load, observer) for observer in observers]
    for served in all_served:
        served.run(WARM_STEPS)
    assert checked.num_running == load.running, f"{checked.num_running} run, want {load.running}"
    steps = max(BLOCK_STEPS, interval_of(live_of(checked.engine))) if level == CENSUS else BLOCK_STEPS
    blocks: list[Block] = []
    while sum(block.checked for block in blocks) < cpu_seconds or len(blocks) < LEAST_BLOCKS:
        for served in all_served if len(blocks) % 2 else reversed(all_served):
            served.run(steps)
        blocks.append(Block(plain.cpu_seconds, observed.cpu_seconds, checked.cpu_seconds))
    share = median(1 - block.observed / block.checked for block in blocks)
    step_us = median(block.checked for block in blocks) / steps * 1e6
    events_us = median(block.observed - block.plain for block in blocks) / steps * 1e6
    pages = sum(pool.num_pages for pool in config.pools)
    seconds = sum(block.checked for block in blocks)
    return Overhead(level, share, share * step_us, events_us, step_us, len(blocks) * steps, seconds, pages)


def measure_all(levels: Sequence[str] = tuple(CHECKERS), *, cpu_seconds: float = CPU_SECONDS) -> list[Overhead]:
    return [measure(level, cpu_seconds=cpu_seconds) for level in levels]
