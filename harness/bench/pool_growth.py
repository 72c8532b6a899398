"""The cost of an engine step in small and in large pools, at the same traffic, without a check and with the audit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from swarden.harness.bench.load import ConstantLoad, LoadedEngine, config_of
from swarden.harness.strict.checker import StrictChecker, audit

SMALL_PAGES, LARGE_PAGES = 64, 65_536
PAIRS = 7
STEPS = 600  # per measurement
WARM_STEPS = 64
LOAD = ConstantLoad(
    running=4, shared_len=64, own_len=48, max_new_tokens=48
)  # fits into the small pools, with evictions
CHECKERS: Mapping[str, Callable[..., StrictChecker] | None] = {"off": None, "audit": audit}


@dataclass(frozen=True)
class Growth:
    """Microseconds of CPU per step in small and large pools, and their ratio: medians over alternating pairs.

    `level` is the level of the strict check, or "off".
    """

    level: str
    ratio: float
    small_us: float
    large_us: float


def measure(level: str, *, pairs: int = PAIRS, steps: int = STEPS) -> Growth:
    """Serve the same traffic in small and in large pools, in turns."""
    served = {pages: _served(level, pages) for pages in (SMALL_PAGES, LARGE_PAGES)}
    for one in served.values():
        one.run(WARM_STEPS)
    costs: dict[int, list[float]] = {pages: [] for pages in served}
    for pair in range(pairs):
        for pages in sorted(served, reverse=pair % 2 == 1):
            one = served[pages]
            one.run(steps)
            costs[pages].append(one.cpu_seconds / steps * 1e6)
    ratios = [large / small for small, large in zip(costs[SMALL_PAGES], costs[LARGE_PAGES], strict=True)]
    return Growth(level, median(ratios), median(costs[SMALL_PAGES]), median(costs[LARGE_PAGES]))


def measure_all(*, pairs: int = PAIRS, steps: int = STEPS) -> list[Growth]:
    return [measure(level, pairs=pairs, steps=steps) for level in CHECKERS]


def _served(level: str, pages: int) -> LoadedEngine:
    make = CHECKERS[level]
    return LoadedEngine(config_of(pages, LOAD.running), LOAD, make(reports=False) if make else None)
