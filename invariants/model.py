"""What a naive model of a part foretells, against what the part did."""

from invariants.base import Evidence, Transition, When, invariant
from invariants.events import Modelled


@invariant(When.OP, covers=("FREE-UNIQ", "COUNTERS", "MATCH-VALID", "EVICT-EFFECT", "LOCK-RECEIPT"), on=(Modelled,))
def the_model_agrees(change: Transition) -> Evidence:
    """What an operation did is what a naive model foretells."""
    for event in change.events_of(Modelled):
        if event.expected != event.found:
            yield event.what, f"the model has {event.expected}, the engine {event.found}"
