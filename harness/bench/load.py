"""The load for the timing of engine steps."""

from dataclasses import dataclass
from time import process_time

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.ports import Observer, Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.harness.kit.tags import TagModel
from swarden.harness.strict.checker import StrictChecker

RUNNING = 64
PAGES = 65_536
FAMILIES = 16  # of prompts with the same start


def config_of(pages: int, running: int, **settings: object) -> EngineConfig:
    """A configuration with two pools of `pages` pages each, and with `settings`."""
    usual = EngineConfig(
        page_size=16,
        full_pages=pages,
        swa_pages=pages,
        sliding_window=128,
        max_running_requests=running,
        max_context_len=2048,
        chunk_len=2048,
    )
    return EngineConfig.from_mapping(usual.to_mapping() | settings)


@dataclass(frozen=True, slots=True)
class ConstantLoad:
    """A constant number of running requests: each finished request is replaced. Prompts share prefixes."""

    running: int = RUNNING
    shared_len: int = 256
    own_len: int = 256
    max_new_tokens: int = 128

    def prompt(self, number: int) -> list[int]:
        family = number % FAMILIES
        return [*range(family, family + self.shared_len), *range(number << 20, (number << 20) + self.own_len)]


class LoadedEngine:
    """One engine under a load, and the CPU seconds of its latest run."""

    def __init__(self, config: EngineConfig, load: ConstantLoad, observer: Observer | None) -> None:
        self.cpu_seconds = 0.0
        self.num_running = 0
        self._load = load
        self.engine = Engine(config, Ports(FakeForward(TagModel()), FakeClock(), observer))
        self._num_submitted = self._num_alive = 0
        if isinstance(observer, StrictChecker):
            observer.attach(self.engine)

    def run(self, steps: int) -> None:
        """Run steps with the full number of requests; `cpu_seconds` is set to their CPU time."""
        began = process_time()
        for _ in range(steps):
            self._step()
        self.cpu_seconds = process_time() - began

    def _step(self) -> None:
        while self._num_alive < self._load.running:
            self.engine.submit(
                self._load.prompt(self._num_submitted),
                # The lengths differ, so that the requests do not end at once.
                SamplingParams(self._load.max_new_tokens - self._num_submitted % 32),
            )
            self._num_submitted += 1
            self._num_alive += 1
        outputs = self.engine.step()
        self._num_alive -= sum(output.finish_reason is not None for output in outputs)
        self.num_running = len(self.engine.scheduler.running)
