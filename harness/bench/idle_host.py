"""The cost of an idle host tier: the same traffic with it and without it, in turns."""

from dataclasses import dataclass
from statistics import median

from swarden.harness.bench.load import PAGES, ConstantLoad, LoadedEngine, config_of

PAIRS = 5
BLOCKS_PER_PAIR = 12
BLOCK_STEPS = 16
WARM_STEPS = 100


@dataclass(frozen=True)
class IdleHost:
    """The ratio of steps per second with and without the tier, and CPU microseconds per step; medians over blocks."""

    ratio: float
    with_us: float
    without_us: float


def measure(*, pairs: int = PAIRS, pages: int = PAGES, load: ConstantLoad | None = None) -> IdleHost:
    """Measure with a device that never evicts, so that a write-back tier stays idle."""
    load = load or ConstantLoad()
    tier = {"host_full_pages": pages, "host_swa_pages": pages, "host_policy": "write_back"}
    without, hosted = both = [LoadedEngine(config_of(pages, load.running, **one), load, None) for one in ({}, tier)]
    for served in both:
        served.run(WARM_STEPS)
    costs: list[tuple[float, float]] = []
    for block in range(pairs * BLOCKS_PER_PAIR):
        for served in both if block % 2 else reversed(both):
            served.run(BLOCK_STEPS)
        costs.append((without.cpu_seconds, hosted.cpu_seconds))
    host = hosted.engine.memory.host
    assert host is not None, "the engine has a host tier"
    assert all(ledger.num_free == ledger.capacity for ledger in host.ledgers), "the host tier was idle"
    without_us, with_us = (median(of_one) / BLOCK_STEPS * 1e6 for of_one in zip(*costs, strict=True))
    return IdleHost(median(plain / tiered for plain, tiered in costs), with_us, without_us)
