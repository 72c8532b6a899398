"""Aborts for want of memory of requests that fit alone."""

from dataclasses import replace

from swarden.invariants.contracts.out_of_memory import OutOfMemoryCode, oom_abort_only_if_alone
from swarden.invariants.events import Finished, FinishReason
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import AFTER, LIMITS, broken, during, healthy, idle

ABORTED = Finished(1, FinishReason.OUT_OF_MEMORY)

CASES = [
    healthy(
        oom_abort_only_if_alone,
        idle(ABORTED, before=replace(AFTER, limits=LIMITS._replace(lookahead_len=17))),
        "lookahead-does-not-fit",
    ),
    broken(
        oom_abort_only_if_alone,
        "fits-alone",
        during(ABORTED, requests=()),
        found(Ref("request", 1), OutOfMemoryCode.WOULD_FIT_ALONE, length=20),
    ),
]
