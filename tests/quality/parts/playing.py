"""Plays a part of our engine: Hypothesis draws what is done to the part and to a naive model of it."""

from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.engines.own.config import configuration, with_states
from swarden.harness.search.traffic.traffic import HypothesisDraw

RUNS, STEPS = 100, 30  # the most steps of a run


class Disagreement(AssertionError):
    """The part has another outcome than its model."""


def expect(subject: str, expected: object, found: object) -> None:
    """Raise Disagreement if the outcome that the model expects is not the one of the part."""
    if expected != found:
        raise Disagreement(f"{subject}: the model has {expected}, the part has {found}")


@st.composite
def configurations(draw: st.DrawFn, /, **limits: Sequence[Any]) -> EngineConfig:
    """Configurations of the engine, within these limits; half of them with states."""
    source = HypothesisDraw(draw(st.data()))
    return with_states(source, configuration(source, **limits))


def play(part: type[RuleBasedStateMachine], *, runs: int = RUNS, shrinks: bool = True) -> None:
    """Make runs of a part, the same ones in each call; a failure is shrunk and printed as a program."""
    how = settings(
        max_examples=runs,
        stateful_step_count=STEPS,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink] if shrinks else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(part, settings=how)
