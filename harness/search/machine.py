"""What every machine has: a driver for the run, and a listener that hears how the run ends."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from hypothesis.stateful import RuleBasedStateMachine

from engine_under_test.config import EngineConfig
from harness.core.driver import Driver
from harness.core.ops import Drain, Op
from harness.core.registry import RUN_MODELS, build_driver


class Listener(Protocol):
    """Starts the driver of each run, hears what the run does, and says when no more runs are wanted."""

    @property
    def model(self) -> str: ...

    @property
    def is_over(self) -> bool: ...

    def drive(self, machine: str, configs: Sequence[EngineConfig]) -> Driver | None:
        """The driver of a new run; None leaves the run out."""
        return build_driver(machine, configs, model=self.model if machine in RUN_MODELS else "")

    def before_op(self, op: Op) -> bool:
        """Hears of an op before the driver applies it; False leaves the op out."""
        return True

    def on_op(self, driver: Driver) -> None: ...

    def on_end(self, machine: str, configs: Sequence[EngineConfig], driver: Driver) -> None: ...


class Machine(RuleBasedStateMachine):
    """Draws ops and hands them to the driver; a run that fails goes on idle to its end.

    Hypothesis sees every run pass: the campaign keeps, shrinks and reports the findings.  After the
    listener has had enough, ops are drawn but not applied.
    """

    machine = ""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self.listener = listener
        self.configs: Sequence[EngineConfig] = ()
        self.driver: Driver | None = None

    def begin(self, configs: Sequence[EngineConfig]) -> None:
        """Start the run's engines."""
        self.configs = configs
        if not self.listener.is_over:
            self.driver = self.listener.drive(self.machine, configs)

    def apply(self, op: Op) -> None:
        if self.driver is None or self.driver.failure is not None or self.listener.is_over:
            return
        if not self.listener.before_op(op):
            return
        driver, self.driver = self.driver, None  # an interrupt within the op leaves a torn engine, never to be judged
        driver.apply(op)
        self.driver = driver
        self.listener.on_op(driver)

    def apply_all(self, ops: Iterable[Op]) -> None:
        """Ops that belong together."""
        for op in ops:
            self.apply(op)

    def teardown(self) -> None:
        """Every run ends in a drain, unless it has failed before or the listener leaves the drain out."""
        if self.driver is None:
            return
        if self.driver.failure is None and self.listener.before_op(Drain()):
            self.driver.apply(Drain())
        self.listener.on_end(self.machine, self.configs, self.driver)
