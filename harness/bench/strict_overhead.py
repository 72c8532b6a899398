"""What each level of the strict check costs: the same traffic with and without it, step by step in turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import NamedTuple

from engine_under_test.config import EngineConfig
from engine_under_test.engine import Engine
from engine_under_test.events import Event
from engine_under_test.ports import Observer, Ports
from engine_under_test.sampling import SamplingParams
from fakes.clock import FakeClock
from fakes.forward import FakeForward
from harness.engines.swarden import ReferenceModel
from harness.strict.checker import StrictChecker, audit, census, sums

CHECKERS: dict[str, Callable[..., StrictChecker]] = {"sums": sums, "audit": audit, "census": census}
CPU_SECONDS = 10.0  # a level
BLOCK_STEPS = 16  # at a time with one engine: asking for the time is not free
LEAST_BLOCKS = 4
WARM_STEPS = 100
RUNNING = 64
PAGES = 65_536
FAMILIES = 16  # of prompts with the same start
THOUSAND_PAGES = 1000


def config_of(pages: int, running: int) -> EngineConfig:
    """Two pools of `pages` pages each."""
    return EngineConfig(
        page_size=16,
        full_pages=pages,
        swa_pages=pages,
        sliding_window=128,
        max_running_requests=running,
        max_context_len=2048,
        chunk_len=2048,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """As many requests as may run, each replaced as it ends: a prompt that begins as others do, and its output."""

    running: int = RUNNING
    shared_len: int = 256
    own_len: int = 256
    max_new_tokens: int = 128

    def prompt(self, number: int) -> list[int]:
        family = number % FAMILIES
        return [*range(family, family + self.shared_len), *range(number << 20, (number << 20) + self.own_len)]


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


class Served:
    """One engine under a load, and the CPU seconds of its steps."""

    def __init__(self, config: EngineConfig, load: Load, observer: Observer | None) -> None:
        self.cpu_seconds = 0.0
        self.num_running = 0
        self._load = load
        self._engine = Engine(config, Ports(FakeForward(ReferenceModel()), FakeClock(), observer))
        self._num_submitted = self._num_alive = 0
        if isinstance(observer, StrictChecker):
            observer.attach(self._engine)

    def run(self, steps: int) -> None:
        """Steps, each with as many requests as may run; `cpu_seconds` is what they took."""
        began = process_time()
        for _ in range(steps):
            self._step()
        self.cpu_seconds = process_time() - began

    def _step(self) -> None:
        while self._num_alive < self._load.running:
            self._engine.submit(
                self._load.prompt(self._num_submitted),
                # Not all of one length, or they all end at once.
                SamplingParams(self._load.max_new_tokens - self._num_submitted % 32),
            )
            self._num_submitted += 1
            self._num_alive += 1
        outputs = self._engine.step()
        self._num_alive -= sum(output.finish_reason is not None for output in outputs)
        self.num_running = len(self._engine.scheduler.running)


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
