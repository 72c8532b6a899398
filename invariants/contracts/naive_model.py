"""A part of the engine behaves like a naive model of it."""

from swarden.invariants.events import Modelled
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Ref, found


class NaiveModelCode(Code):
    DIFFERS = "the naive model has {expected}, the engine has {got}"


@invariant(When.OP, on=(Modelled,))
def part_matches_its_model(change: Transition) -> Evidence:
    """An operation on a part of the engine has the outcome that a naive model predicts."""
    for event in change.events_of(Modelled):
        if event.expected != event.found:
            yield found(Ref(event.what), NaiveModelCode.DIFFERS, expected=event.expected, got=event.found)
