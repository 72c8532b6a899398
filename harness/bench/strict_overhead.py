"""What each level of the strict check costs: the same traffic with and without it, step by step in turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from engine_under_test.config import EngineConfig
from engine_under_test.events import Event
from harness.bench.load import PAGES, Load, Served, config_of
from harness.strict.checker import StrictChecker, audit, census, sums

CHECKERS: dict[str, Callable[..., StrictChecker]] = {"sums": sums, "audit": audit, "census": census}
CPU_SECONDS = 10.0  # a level
BLOCK_STEPS = 16  # at a time with one engine: asking for the time is not free
LEAST_BLOCKS = 4
WARM_STEPS = 100
THOUSAND_PAGES = 1000


@dataclass(frozen=True)
class Overhead:
    """CPU of a level, as the share of the steps that the check takes and in microseconds a step.

    `told_us` is what it costs the engine to tell anybody anything, which is not the check's.  Medians over blocks of
    the same steps, for what else the machine does hits some blocks hard.
    """

    level: str
    share: float
    check_us: float
    told_us: float
    step_us: float
    steps: int
    cpu_seconds: float
    pages: int

    @property
    def ms_per_thousand_pages(self) -> float:
        return self.check_us / 1000 / (self.pages / THOUSAND_PAGES)


class Block(NamedTuple):
    """Seconds of CPU for the same steps."""

    plain: float
    told: float
    checked: float


class Listener:
    """Hears everything and does nothing."""

    def notice(self, event: Event) -> None:
        pass


def measure(
    level: str, *, cpu_seconds: float = CPU_SECONDS, config: EngineConfig | None = None, load: Load | None = None
) -> Overhead:
    """Serve with a level, with one who only listens and with nobody, in turns, for so many seconds of the first."""
    load = load or Load()
    config = config or config_of(PAGES, load.running)
    observers = (None, Listener(), CHECKERS[level](reports=False))
    plain, told, checked = all_served = [Served(config, load, observer) for observer in observers]
    for served in all_served:
        served.run(WARM_STEPS)
    assert checked.num_running == load.running, f"{checked.num_running} run, want {load.running}"
    blocks: list[Block] = []
    while sum(block.checked for block in blocks) < cpu_seconds or len(blocks) < LEAST_BLOCKS:
        for served in all_served if len(blocks) % 2 else reversed(all_served):
            served.run(BLOCK_STEPS)
        blocks.append(Block(plain.cpu_seconds, told.cpu_seconds, checked.cpu_seconds))
    share = median(1 - block.told / block.checked for block in blocks)
    step_us = median(block.checked for block in blocks) / BLOCK_STEPS * 1e6
    told_us = median(block.told - block.plain for block in blocks) / BLOCK_STEPS * 1e6
    pages = sum(pool.num_pages for pool in config.pools)
    seconds = sum(block.checked for block in blocks)
    return Overhead(level, share, share * step_us, told_us, step_us, len(blocks) * BLOCK_STEPS, seconds, pages)


def measure_all(levels: Sequence[str] = tuple(CHECKERS), *, cpu_seconds: float = CPU_SECONDS) -> list[Overhead]:
    return [measure(level, cpu_seconds=cpu_seconds) for level in levels]
