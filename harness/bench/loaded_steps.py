"""The cost of a step under a constant load: with an idle host tier, with the strict check, and in larger pools."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.ports import Observer, Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.strict import CENSUS
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.harness.bench.timing import Measured, in_turns, paired, timed
from swarden.harness.engines.own.live import live_of
from swarden.harness.kit.tags import TagModel
from swarden.harness.strict.census import interval_of
from swarden.harness.strict.checker import StrictChecker, audit, census, sums
from swarden.invariants.events import Event

FAMILIES = 16  # of prompts with the same start
WARM_STEPS = 100
BLOCK_STEPS = 16  # per engine at a time, because reading the clock has a cost
HOST_BLOCKS = 12  # per pair
LEVEL_BLOCKS = 4  # at least
LEVEL_SECONDS = 10.0  # of CPU
SMALL_PAGES, LARGE_PAGES = 64, 65_536
GROWTH_STEPS = 600  # per side of a pair


@dataclass(frozen=True, slots=True)
class ConstantLoad:
    """A constant number of running requests in two pools: each finished request is replaced. Prompts share prefixes."""

    pages: int = LARGE_PAGES  # of each pool
    running: int = 64
    shared_len: int = 256
    own_len: int = 256
    max_new_tokens: int = 128

    def config(self, **settings: object) -> EngineConfig:
        usual = EngineConfig(
            page_size=16,
            full_pages=self.pages,
            swa_pages=self.pages,
            sliding_window=128,
            max_running_requests=self.running,
            max_context_len=2048,
            chunk_len=2048,
        )
        return EngineConfig.from_mapping(usual.to_mapping() | settings)

    def submit(self, engine: Engine, number: int) -> None:
        """Submit a request; the lengths differ, so that the requests do not end at once."""
        family, own = number % FAMILIES, number << 20
        prompt = [*range(family, family + self.shared_len), *range(own, own + self.own_len)]
        engine.submit(prompt, SamplingParams(self.max_new_tokens - number % 32))


USUAL_LOAD = ConstantLoad()
GROWTH_LOAD = ConstantLoad(running=4, shared_len=64, own_len=48, max_new_tokens=48)  # small pools need evictions


class LoadedEngine:
    """One engine under a load, after WARM_STEPS; `settings` change its configuration."""

    def __init__(self, load: ConstantLoad, observer: Observer | None = None, **settings: object) -> None:
        self.engine = Engine(load.config(**settings), Ports(FakeForward(TagModel()), FakeClock(), observer))
        self._load = load
        self._num_submitted = self._num_finished = 0
        if isinstance(observer, StrictChecker):
            observer.attach(self.engine)
        self._run(WARM_STEPS)

    def step_us(self, steps: int = BLOCK_STEPS) -> float:
        """Run steps with the full number of requests; returns their microseconds of CPU per step."""
        seconds, _ = timed(lambda: self._run(steps))
        return seconds / steps * 1e6

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            while self._num_submitted - self._num_finished < self._load.running:
                self._load.submit(self.engine, self._num_submitted)
                self._num_submitted += 1
            self._num_finished += sum(output.finish_reason is not None for output in self.engine.step())


class IdleObserver:
    """An observer that ignores all events."""

    def notice(self, event: Event) -> None:
        pass


def content_at(share: float) -> Callable[..., StrictChecker]:
    """The level content, which checks this share of the slots."""
    return lambda *, reports: StrictChecker(lambda live: live.content(live, share), reports=reports)


CHECKERS: dict[str, Callable[..., StrictChecker]] = {
    "sums": sums,
    "audit": audit,
    CENSUS: census,
    **{f"content {share}": content_at(share) for share in (0.01, 0.1, 1)},
}


def measure_strict(*, pairs: int, cpu_seconds: float) -> Iterator[Measured]:
    """Measure each level of the strict check, and then larger pools with the check off and with the audit."""
    for level in CHECKERS:
        yield strict_overhead(level, cpu_seconds=cpu_seconds)
    for level in ("off", "audit"):
        yield pool_growth(level, pairs=pairs)


def strict_overhead(level: str, load: ConstantLoad = USUAL_LOAD, *, cpu_seconds: float) -> Measured:
    """Serve with a level, with an idle observer and without an observer, in turns, for `cpu_seconds` of the level.

    Emitting events is no cost of the check.  The figures are medians over blocks of the same steps, because other load
    of the machine disturbs some blocks; a block has one walk of the census at least.
    """
    observers = (None, IdleObserver(), CHECKERS[level](reports=False))
    engines = [LoadedEngine(load, observer) for observer in observers]
    steps = max(BLOCK_STEPS, interval_of(live_of(engines[-1].engine))) if level == CENSUS else BLOCK_STEPS
    blocks: list[list[float]] = []
    for block in in_turns(*(partial(engine.step_us, steps) for engine in engines)):
        blocks.append(block)
        spent_us = sum(checked for _, _, checked in blocks) * steps
        if spent_us >= cpu_seconds * 1e6 and len(blocks) >= LEVEL_BLOCKS:
            break
    share = median(1 - observed / checked for _, observed, checked in blocks)
    step_us = median(checked for _, _, checked in blocks)
    events_us = median(observed - plain for plain, observed, _ in blocks)
    check_us = share * step_us
    ms_per_thousand_pages = check_us / (2 * load.pages)
    figures = {
        "strict_overhead": {level: round(share, 4)},
        "strict_us_per_step": {level: round(check_us, 1)},
        "strict_events_us": {level: round(events_us, 1)},
        "strict_step_us": {level: round(step_us, 1)},
    }
    return Measured(
        f"strict check, {level}: {share:.1%} of a step ({check_us:.0f} us of {step_us:.0f} us of CPU over "
        f"{len(blocks) * steps} steps), {ms_per_thousand_pages:.3f} ms per 1,000 pages; the engine's events took "
        f"{events_us:.0f} us more",
        figures | ({"census_ms_per_thousand_pages": round(ms_per_thousand_pages, 3)} if level == CENSUS else {}),
    )


def pool_growth(level: str, *, pairs: int) -> Measured:
    """Serve the same traffic in large and in small pools, at a level of the check or with the check off."""
    sides = []
    for pages in (LARGE_PAGES, SMALL_PAGES):
        observer = None if level == "off" else CHECKERS[level](reports=False)
        sides.append(partial(LoadedEngine(replace(GROWTH_LOAD, pages=pages), observer).step_us, GROWTH_STEPS))
    measured = paired(*sides, pairs=pairs)
    large_us, small_us = measured.sides
    return Measured(
        f"pools of {LARGE_PAGES} pages against {SMALL_PAGES}, strict check {level}: {measured.ratio:.2f} "
        f"({large_us:.0f} us / {small_us:.0f} us of CPU a step)",
        {
            "pool_growth_ratio": {level: measured.ratio},
            "pool_growth_us": {level: [small_us, large_us]},
        },
    )


def measure_host(load: ConstantLoad = USUAL_LOAD, *, pairs: int) -> Iterator[Measured]:
    """Measure with a device that never evicts, so that a write-back tier stays idle."""
    hosted = LoadedEngine(load, host_full_pages=load.pages, host_swa_pages=load.pages, host_policy="write_back")
    measured = paired(LoadedEngine(load).step_us, hosted.step_us, pairs=pairs * HOST_BLOCKS)
    host = hosted.engine.memory.host
    assert host is not None, "the engine has a host tier"
    assert all(ledger.num_free == ledger.capacity for ledger in host.ledgers), "the host tier was idle"
    without_us, with_us = measured.sides
    yield Measured(
        f"steps per second with an idle host tier / without one: {measured.ratio:.2f} "
        f"({with_us:.0f} us / {without_us:.0f} us of CPU a step)",
        {"idle_host_ratio": measured.ratio, "idle_host_us": [with_us, without_us]},
    )
