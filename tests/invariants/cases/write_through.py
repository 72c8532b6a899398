"""Nodes that an ended request has inserted, and of which the host gets no copy."""

from dataclasses import replace

from swarden.invariants.contracts.write_through import WriteThroughCode, ended_requests_are_written_through
from swarden.invariants.events import Finished, FinishReason
from swarden.invariants.violation import found, node_ref, request_ref
from tests.invariants.builders import broken, healthy, with_pool
from tests.invariants.host_builders import BEFORE_COPYING, COPYING, HOST_LIMITS, not_copying, with_node

ENDED = Finished(1, FinishReason.LENGTH)
WRITING_THROUGH = replace(
    BEFORE_COPYING,
    limits=HOST_LIMITS._replace(writes_through=True),
    records=tuple(record._replace(protected_len=8) for record in BEFORE_COPYING.records or ()),
)
SHARED = replace(WRITING_THROUGH, records=BEFORE_COPYING.records)


def ending(event=ENDED, *, before=WRITING_THROUGH, **parts):
    """r1 ends after a step that inserted n2, of which the host has no copy."""
    return not_copying(event, before=before, **{"records": (), **parts})


CASES = [
    healthy(
        ended_requests_are_written_through,
        ending(nodes=with_node(WRITING_THROUGH, 2, copies=((7, 8), (5, 6)))),
        "copied",
    ),
    healthy(ended_requests_are_written_through, ending(copy_jobs=COPYING.copy_jobs), "copy-under-way"),
    healthy(ended_requests_are_written_through, ending(before=SHARED), "shared-before"),
    healthy(ended_requests_are_written_through, ending(Finished(1, FinishReason.ABORT)), "aborted"),
    healthy(
        ended_requests_are_written_through,
        ending(pools=with_pool(WRITING_THROUGH, "host full", free=(7,))),
        "too-few-free-pages",
    ),
    broken(
        ended_requests_are_written_through,
        "no-copy",
        ending(),
        *(
            found(node_ref(2), WriteThroughCode.NOT_COPIED, component=pool, request=request_ref(1), free=4)
            for pool in ("full", "swa")
        ),
    ),
    broken(
        ended_requests_are_written_through,
        "no-copy-of-the-window",
        ending(nodes=with_node(WRITING_THROUGH, 2, copies=((7, 8), ()))),
        found(node_ref(2), WriteThroughCode.NOT_COPIED, component="swa", request=request_ref(1), free=4),
    ),
]
