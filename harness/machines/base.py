"""What every machine has: a driver for the run, and somebody who hears how it ended."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from hypothesis.stateful import RuleBasedStateMachine

from engine_under_test.config import EngineConfig
from harness.driver import Driver
from harness.engines.registry import RUN_MODELS, build_driver
from harness.ops import Drain, Op


class Listener(Protocol):
    """Says with which model engines run, hears of each run, and says when it has heard enough."""

    @property
    def model(self) -> str: ...

    @property
    def is_over(self) -> bool: ...

    def on_op(self, driver: Driver) -> None: ...

    def on_end(self, machine: str, configs: Sequence[EngineConfig], driver: Driver) -> None: ...


class Machine(RuleBasedStateMachine):
    """Draws ops and hands them to the driver; a run that fails goes on idle to its end.

    Hypothesis sees every run pass: findings are kept, shrunk and told by the campaign.  When that is
    over, what is still drawn is not done any more.
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
            model = self.listener.model if self.machine in RUN_MODELS else ""
            self.driver = build_driver(self.machine, configs, model=model)

    def apply(self, op: Op) -> None:
        if self.driver is not None and not self.listener.is_over:
            self.driver.apply(op)
            self.listener.on_op(self.driver)

    def apply_all(self, ops: Iterable[Op]) -> None:
        """Ops that belong together."""
        for op in ops:
            self.apply(op)

    def teardown(self) -> None:
        """Every run ends in a drain."""
        if self.driver is not None:
            self.driver.apply(Drain())
            self.listener.on_end(self.machine, self.configs, self.driver)
