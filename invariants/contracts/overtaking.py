"""No waiting request is passed over for ever, in an engine that admits in the order of arrival.

On a server: A client waits for its first token for as long as others arrive.
"""

from swarden.invariants.events import Launched
from swarden.invariants.invariant import invariant
from swarden.invariants.limits import ARRIVAL
from swarden.invariants.past import overtaken
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref

MOST_PASSES = 4  # in which later requests begin; a release may skip a request that waits for its KV or its state


class OvertakingCode(Code):
    PASSED_OVER = "waits, and was passed over by later requests in {passes} passes, {latest} the last of them"


def is_first_come(change: Transition) -> bool:
    """Does the engine admit in the order of arrival, within a priority if it has any (`waits_by`)?"""
    return ARRIVAL in change.after.limits.waits_by


@invariant(When.STEP, needs=("requests",), on=(Launched,), given=is_first_come)
def waiting_requests_are_not_passed_over(change: Transition) -> Evidence:
    """A request waits in no more than a few passes in which requests begin that arrived and were queued behind it.

    Passes are counted, not time.  Requests of a higher priority do not count.
    """
    passes = change.reference.past.waiting
    for request_id, latest in change.once(overtaken).items():
        if passes[request_id] >= MOST_PASSES:
            values = {"passes": passes[request_id] + 1, "latest": request_ref(latest)}
            yield found(request_ref(request_id), OvertakingCode.PASSED_OVER, **values)
