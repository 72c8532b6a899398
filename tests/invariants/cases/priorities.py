"""Preemptions that violate the priorities."""

from swarden.invariants.events import Preempted
from swarden.invariants.laws.lifecycle.priorities import PriorityCode, preemption_serves_higher_priority
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import broken
from tests.invariants.cases.preemption import ADMITTED, PREEMPTED, PREEMPTOR, VICTIM, preempting

CASES = [
    broken(
        preemption_serves_higher_priority,
        "preemption-is-off",
        preempting(PREEMPTED, ADMITTED, threshold=None),
        found(VICTIM, PriorityCode.PREEMPTION_IS_OFF, by=PREEMPTOR),
    ),
    broken(
        preemption_serves_higher_priority,
        "at-the-threshold",
        preempting(PREEMPTED, ADMITTED, threshold=3),
        found(VICTIM, PriorityCode.PRIORITY_TOO_LOW, by=PREEMPTOR, priority=2, by_priority=5, threshold=3),
    ),
    broken(
        preemption_serves_higher_priority,
        "of-a-waiting-request",
        preempting(Preempted(2, 0, 2), ADMITTED),
        found(Ref("request", 2), PriorityCode.VICTIM_NOT_RUNNING, by=PREEMPTOR),
    ),
]
