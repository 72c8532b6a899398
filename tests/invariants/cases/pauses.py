"""Pauses in which a pass is launched, and pauses without an event."""

from dataclasses import replace

from swarden.invariants.events import Launched, Paused, Resumed
from swarden.invariants.laws.lifecycle.pauses import PauseCode, paused_engine_launches_nothing, pauses_are_reported
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import AFTER, broken, healthy, idle

PAUSED = replace(AFTER, is_paused=True)
LAUNCHED = Launched(8, ((1, 21, 22),))
RESUMED = idle(Resumed(), LAUNCHED, before=PAUSED, after=AFTER)

CASES = [
    healthy(paused_engine_launches_nothing, RESUMED, "launched-after-the-pause"),
    broken(
        paused_engine_launches_nothing,
        "launched-in-the-pause",
        idle(Paused(), LAUNCHED, after=PAUSED),
        found(Ref("launch", 8), PauseCode.LAUNCHED),
    ),
    broken(
        pauses_are_reported,
        "began-without-an-event",
        idle(after=PAUSED),
        found(Ref("engine"), PauseCode.BEGAN_UNREPORTED),
    ),
    broken(
        pauses_are_reported,
        "ended-without-an-event",
        idle(before=PAUSED, after=AFTER),
        found(Ref("engine"), PauseCode.ENDED_UNREPORTED),
    ),
]
