"""The cost of the strict check in a step under a constant load, and of a step in larger pools."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.ports import Observer, Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.strict import CENSUS
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.harness.bench.timing import Case, paired, timed
from swarden.harness.engines.own.live import live_of
from swarden.harness.kit.tags import TagModel
from swarden.harness.strict.census import interval_of
from swarden.harness.strict.checker import StrictChecker, audit, census, sums
from swarden.invariants.events import Event

FAMILIES = 16  # of prompts with the same start
WARM_STEPS = 100
BLOCK_STEPS = 16  # per engine at a time, because reading the clock has a cost
LEVEL_BLOCKS = 4  # at least
LEVEL_SECONDS = 10.0  # of CPU
SMALL_PAGES, LARGE_PAGES = 64, 65_536
GROWTH_STEPS = 600  # per side of a pair
GROWTH_PAIRS = 5


@dataclass(frozen=True, slots=True)
class ConstantLoad:
    """A constant number of running requests in two pools: each finished request is replaced. Prompts share prefixes."""

    pages: int = LARGE_PAGES  # of each pool
    running: int = 64
    shared_len: int = 256
    own_len: int = 256
    max_new_tokens: int = 128


USUAL_LOAD = ConstantLoad()
GROWTH_LOAD = ConstantLoad(running=4, shared_len=64, own_len=48, max_new_tokens=48)  # small pools need evictions


class LoadedEngine:
    """One engine under a load, after WARM_STEPS."""

    def __init__(self, load: ConstantLoad, observer: Observer | None = None) -> None:
        config = EngineConfig(
            page_size=16,
            full_pages=load.pages,
            swa_pages=load.pages,
            sliding_window=128,
            max_running_requests=load.running,
            max_context_len=2048,
            chunk_len=2048,
        )
        self.engine = Engine(config, Ports(FakeForward(TagModel()), FakeClock(), observer))
        self._load = load
        self._num_submitted = self._num_finished = 0
        if isinstance(observer, StrictChecker):
            observer.attach(self.engine)
        self.step_us(WARM_STEPS)

    def step_us(self, steps: int) -> float:
        """Run steps with the full number of requests; returns their microseconds of CPU per step."""
        seconds, _ = timed(lambda: self._run(steps))
        return seconds / steps * 1e6

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            while self._num_submitted - self._num_finished < self._load.running:
                self._submit(self._num_submitted)
                self._num_submitted += 1
            self._num_finished += sum(output.finish_reason is not None for output in self.engine.step())

    def _submit(self, number: int) -> None:
        """Submit a request; the lengths differ, so that the requests do not end at once."""
        family, own, load = number % FAMILIES, number << 20, self._load
        prompt = [*range(family, family + load.shared_len), *range(own, own + load.own_len)]
        self.engine.submit(prompt, SamplingParams(load.max_new_tokens - number % 32))


class IdleObserver:
    """An observer that ignores all events."""

    def notice(self, event: Event) -> None:
        pass


def content_at(share: float) -> Callable[..., StrictChecker]:
    """The level content, which checks this share of the slots."""
    return partial(StrictChecker, lambda live: live.content(live, share))


CHECKERS: dict[str, Callable[..., StrictChecker]] = {"sums": sums, "audit": audit, CENSUS: census}
CHECKERS |= {f"content {share}": content_at(share) for share in (0.01, 0.1, 1)}


def measure() -> Iterator[Case]:
    """Measure each level of the strict check, and then larger pools with the check off and with the audit."""
    for level in CHECKERS:
        yield strict_overhead(level)
    for level in ("off", "audit"):
        yield pool_growth(level)


def strict_overhead(level: str, load: ConstantLoad = USUAL_LOAD, *, cpu_seconds: float = LEVEL_SECONDS) -> Case:
    """Serve with a level, with an idle observer and without an observer, in turns, for `cpu_seconds` of the level.

    The emission of events does not count as a cost of the check.  The figures are medians over blocks of the same
    steps, because other load of the machine disturbs some blocks; a block has at least one walk of the census.
    """
    checked = LoadedEngine(load, CHECKERS[level](reports=False))
    steps = max(BLOCK_STEPS, interval_of(live_of(checked.engine))) if level == CENSUS else BLOCK_STEPS
    num_blocks = max(LEVEL_BLOCKS, ceil(cpu_seconds * 1e6 / (checked.step_us(steps) * steps)))
    blocks = paired(
        num_blocks,
        checked=partial(checked.step_us, steps),
        observed=partial(LoadedEngine(load, IdleObserver()).step_us, steps),
        plain=partial(LoadedEngine(load).step_us, steps),
    )
    share = 1 - 1 / blocks["ratio"]
    check_us = share * blocks["checked"]
    return Case(
        f"strict check, {level}",
        {
            "share of a step": round(share, 4),
            "us": round(check_us, 1),
            "us of a step": blocks["checked"],
            "steps": num_blocks * steps,
            "ms per 1,000 pages": round(check_us / (2 * load.pages), 3),
            "us of events": round(blocks["observed"] - blocks["plain"], 1),
        },
    )


def pool_growth(level: str, *, pairs: int = GROWTH_PAIRS) -> Case:
    """Serve the same traffic in large and in small pools, at a level of the check or with the check off."""
    sides = {}
    for name, pages in (("large", LARGE_PAGES), ("small", SMALL_PAGES)):
        observer = None if level == "off" else CHECKERS[level](reports=False)
        sides[name] = partial(LoadedEngine(replace(GROWTH_LOAD, pages=pages), observer).step_us, GROWTH_STEPS)
    return Case(
        f"CPU us of a step in pools of {LARGE_PAGES} pages / of {SMALL_PAGES}, strict check {level}",
        paired(pairs, **sides),
    )
