"""Pauses: events report them, and no pass is launched in them.

On a server: A pass runs while weights are replaced: an answer that is computed with old and new weights.
"""

from swarden.invariants.events import Launched, Paused, Resumed
from swarden.invariants.invariant import invariant
from swarden.invariants.laws.lifecycle.flights import launch_ref
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Ref, found


class PauseCode(Code):
    LAUNCHED = "launched in a pause"
    BEGAN_UNREPORTED = "a pause began, but no event reports it"
    ENDED_UNREPORTED = "a pause ended, but no event reports it"


def has_pause(change: Transition) -> bool:
    """Is the engine paused?"""
    return change.before.is_paused or change.after.is_paused


@invariant(When.OP, needs=("Launched", "Paused", "Resumed"), given=has_pause)
def paused_engine_launches_nothing(change: Transition) -> Evidence:
    """A paused engine launches no pass."""
    is_paused = change.before.is_paused
    for event in change.pass_events:
        if isinstance(event, Launched) and is_paused:
            yield found(launch_ref(event.launch), PauseCode.LAUNCHED)
        is_paused = isinstance(event, Paused) or (is_paused and not isinstance(event, Resumed))


@invariant(When.OP, needs=("Paused", "Resumed"), given=has_pause)
def pauses_are_reported(change: Transition) -> Evidence:
    """Events report the start and the end of a pause."""
    is_paused = change.before.is_paused
    for event in change.pass_events:
        is_paused = isinstance(event, Paused) or (is_paused and not isinstance(event, Resumed))
    if is_paused != change.after.is_paused:
        yield found(Ref("engine"), PauseCode.ENDED_UNREPORTED if is_paused else PauseCode.BEGAN_UNREPORTED)
