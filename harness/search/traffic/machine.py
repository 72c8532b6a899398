"""The base of all machines: a player that applies ops, and a listener that is notified of the ops and the end."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from hypothesis.stateful import RuleBasedStateMachine

from swarden.harness.core.driver import Driver
from swarden.harness.core.errors import RunTooLarge
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Abort, Drain, Op
from swarden.harness.core.replay import driver_of
from swarden.harness.core.target import MachineSpec, Target
from swarden.harness.core.target_fault import TargetFault, blamed_on
from swarden.harness.search.traffic.profiles import MAX_RUN_STEPS, MAX_RUN_TOKENS


class RunListener(Protocol):
    """Creates the driver of each run, is notified of its ops and its end, and ends the search."""

    target: Target

    @property
    def is_over(self) -> bool:
        """Whether no further op is applied, in this run or a later one."""

    @property
    def aborts_at_end(self) -> bool:
        """Whether the current run ends with aborts, not with the steps that finish its requests."""
        return False

    def fix(self, machine: str, configs: Sequence[Any]) -> Sequence[Any]:
        """The configurations that were drawn for a run of a machine, with the settings that are fixed for all runs."""
        return configs

    def drive(self, header: Header) -> Driver | None:
        """The driver of a new run; the header has the engine, the machine and the configurations.

        None skips the run.
        """
        return driver_of(header)

    def before_op(self, op: Op) -> bool:
        """Called before the driver applies an op; False skips the op."""
        return True

    def leave_uncounted(self) -> None:
        """Called in a run whose ops reach rare states only by chance: the run must not count as coverage."""
        return

    def on_op(self, driver: Driver) -> None: ...

    def on_end(self, header: Header, driver: Driver) -> None: ...

    def on_fault(self, fault: TargetFault, driver: Driver | None) -> None:
        """Called if the target fails in a run, which ends then; `driver` is None if it could not be made."""
        raise fault


class Player:
    """Applies ops with the driver of a run; `machine` is the name of a machine of the target.

    After a failure, at the limit of the run's work, or when the listener ends the search, ops are not applied.
    """

    machine = ""
    is_ending = False

    def __init__(self, listener: RunListener) -> None:
        super().__init__()
        self.listener = listener
        self.configs: Sequence[Any] = ()
        self.header: Header | None = None
        self.driver: Driver | None = None

    def begin(self, configs: Sequence[Any]) -> None:
        """Start the run's engines, of these configurations of the target with the settings that the listener fixes."""
        self.configs, target = configs, self.listener.target
        try:
            if not self.listener.is_over:
                self.configs = self.listener.fix(self.machine, configs)
                with blamed_on(target.name, "encode"):
                    encoded = [target.encode(config) for config in self.configs]
                self.header = Header(
                    engine=target.name, version=target.version(), machine=self.machine, configs=encoded
                )
                self.driver = self.listener.drive(self.header)
        except TargetFault as fault:
            self.listener.on_fault(fault, None)

    def apply(self, op: Op) -> None:
        if self.driver is None or self.driver.failure is not None or self.listener.is_over:
            return
        if (self.driver.counts.is_limited and not self.is_ending) or not self.listener.before_op(op):
            return
        self._execute(self.driver, op)
        if self.driver is not None:
            self.listener.on_op(self.driver)

    def _execute(self, driver: Driver, op: Op) -> None:
        self.driver = None  # an interrupt leaves an undefined state, which is not checked
        try:
            with suppress(RunTooLarge):  # the run is limited now
                driver.apply(op)
        except TargetFault as fault:
            self.listener.on_fault(fault, driver)
            return
        self.driver = driver

    def apply_all(self, ops: Iterable[Op]) -> None:
        """Apply several ops in order."""
        for op in ops:
            self.apply(op)

    def end(self) -> None:
        """End the run with a drain, unless it has failed or the listener skips the drain."""
        if self.driver is None:
            return
        if self.driver.failure is None and self.listener.before_op(Drain()):
            self._execute(self.driver, Drain())
        if self.driver is None:
            return
        assert self.header is not None, "a run that has a driver has a header"
        self.listener.on_end(self.header, self.driver)


class Machine(Player, RuleBasedStateMachine):
    """Draws ops and applies them, until the run has reached the limit of its work in engine steps and in tokens.

    For Hypothesis every run passes: the campaign saves, shrinks and reports the findings.
    """

    @property
    def spec(self) -> MachineSpec:
        return self.listener.target.machines[self.machine]

    def supported(self, ops: Iterable[Op]) -> list[Op]:
        """The ops, of these, that the machine has."""
        kinds = self.spec.ops
        return [op for op in ops if type(op) in kinds]

    def apply(self, op: Op) -> None:
        super().apply(op)
        if self.driver is not None and _is_large(self.driver):
            self.driver.counts.is_limited = True

    def teardown(self) -> None:
        self.is_ending = True
        if self.driver is not None and (self.driver.counts.is_limited or self.listener.aborts_at_end):
            self.apply_all(_aborts(self.driver))
        self.end()


def _is_large(driver: Driver) -> bool:
    requests = [request for system in driver.systems for request in system.reference.expectations.values()]
    num_tokens = sum(request.prompt_len for request in requests)
    return driver.counts.engine_steps >= MAX_RUN_STEPS or num_tokens >= MAX_RUN_TOKENS


def _aborts(driver: Driver) -> list[Op]:
    """The ops that abort every request, the last one first."""
    return [
        Abort(request=request, engine=engine)
        for engine in range(driver.num_engines)
        for request in reversed(range(len(driver.snapshot(engine).requests or ())))
    ]
