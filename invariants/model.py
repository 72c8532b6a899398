"""What a naive model of a part foretells, against what the part did."""

from invariants.events import Modelled
from invariants.invariant import invariant
from invariants.transition import Transition, When
from invariants.violation import Evidence


@invariant(When.OP, on=(Modelled,))
def the_model_agrees(change: Transition) -> Evidence:
    """What an operation did is what a naive model foretells."""
    for event in change.events_of(Modelled):
        if event.expected != event.found:
            yield event.what, f"the model has {event.expected}, the engine {event.found}"
