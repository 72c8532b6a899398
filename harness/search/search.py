"""One search of Hypothesis over a machine; its runs depend only on the machine and the seed."""

from collections.abc import Collection
from functools import partial

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from swarden.harness.search.traffic.machine import Machine, RunListener

OPS_PER_RUN = 60  # calls of rules, each of which applies one op, or a short sequence of ops


def search(
    machine: type[Machine],
    listener: RunListener,
    *,
    from_seed: int,
    max_runs: int,
    calls: int = OPS_PER_RUN,
    phases: Collection[Phase] = (Phase.generate,),
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
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    factory = seed(from_seed)(partial(machine, listener))
    run_state_machine_as_test(factory, settings=search_settings)  # type: ignore[arg-type]  # any factory will do
