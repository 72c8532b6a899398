"""One search of Hypothesis over a machine; its runs depend only on the machine and the seed.  Machines take turns."""

from collections import Counter
from functools import partial

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from swarden.harness.core.errors import UsageError
from swarden.harness.core.imports import importing
from swarden.harness.core.target import MachineSpec, Target
from swarden.harness.search.traffic.machine import Machine, RunListener
from swarden.harness.search.traffic.pairs import PairTraffic
from swarden.harness.search.traffic.traffic import EngineTraffic

OPS_PER_RUN = 60  # calls of rules, each of which applies one op, or a short sequence of ops


def search(
    machine: type[Machine], listener: RunListener, *, from_seed: int, max_runs: int, calls: int = OPS_PER_RUN
) -> None:
    """Make up to `max_runs` runs of `calls` calls each, and report each run to the listener.

    An error of the listener fails the run.
    """
    search_settings = settings(
        max_examples=max_runs,
        stateful_step_count=calls,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    factory = seed(from_seed)(partial(machine, listener))
    run_state_machine_as_test(factory, settings=search_settings)  # type: ignore[arg-type]  # any factory will do


def turns_of(target: Target, name: str | None) -> list[type[Machine]]:
    """The Hypothesis machines in the order of the batches: that of the machine `name`, or those of a rotation."""
    if name:
        return [_traffic_of(name, target.machines[name])]
    left = Counter({name: spec.batches for name, spec in target.machines.items()})
    order: list[str] = []
    while +left:  # the machines by turns, as long as each has batches left
        order += (+left).keys()
        left.subtract(dict.fromkeys(left, 1))
    if not order:
        raise UsageError(f"{target.name}: no machine has batches; give one at least 1, or name one with --machine")
    return [_traffic_of(name, target.machines[name]) for name in order]


def _traffic_of(name: str, spec: MachineSpec) -> type[Machine]:
    """The class for a machine of a target with this name: its own, or that of every pair, or of every engine."""
    traffic: type[Machine] = PairTraffic if spec.roles else EngineTraffic
    if spec.traffic is not None:
        with importing(f"the traffic of machine {name}", catches=BaseException):
            traffic = spec.traffic()
    if not issubclass(traffic, Machine):
        raise UsageError(f"machine {name}: its traffic {traffic!r} is not derived from {Machine.__module__}.Machine")
    return traffic if traffic.machine == name else type(traffic.__name__, (traffic,), {"machine": name})
