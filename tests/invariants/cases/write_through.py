"""Nodes that an ended request has inserted, and of which the host gets no copy."""

from dataclasses import replace

from swarden.invariants.contracts.write_through import WriteThroughCode, ended_requests_are_written_through
from swarden.invariants.events import Finished, FinishReason
from swarden.invariants.view import ReceiptView
from swarden.invariants.violation import found, node_ref, request_ref
from tests.invariants.builders import broken, healthy, with_pool
from tests.invariants.host_builders import BACKUP, BEFORE_COPYING, COPYING, HOST_LIMITS, not_copying, with_node

ENDED = Finished(1, FinishReason.LENGTH)
WRITING_THROUGH = replace(
    BEFORE_COPYING,
    limits=HOST_LIMITS._replace(writes_through=True),
    records=tuple(record._replace(protected_len=8) for record in BEFORE_COPYING.records or ()),
)
OTHER_BACKUP = ReceiptView(5, BACKUP, 3, ((3,), (3,)))
SHARED = replace(WRITING_THROUGH, records=BEFORE_COPYING.records)


def ending(event=ENDED, *, before=WRITING_THROUGH, **parts):
    """r1 ends after a step that inserted n2, of which the host has no copy."""
    return not_copying(event, before=before, **{"records": (), **parts})


def without_copy_jobs(*, copies):
    """r1 ends after a step that inserted n2; which copies are under way is not known."""
    return ending(nodes=with_node(WRITING_THROUGH, 2, copies=copies), copy_jobs=None)


UNCOPIED = with_node(WRITING_THROUGH, 1, copies=((), ()))
ROOM_FOR_ONE = replace(
    WRITING_THROUGH,
    nodes=UNCOPIED,
    records=tuple(record._replace(protected_len=0) for record in WRITING_THROUGH.records or ()),
)
HALF = {"nodes": UNCOPIED, "pools": with_pool(WRITING_THROUGH, "host full", free=(7, 8))}
NO_COPY = [
    found(node_ref(2), WriteThroughCode.NOT_COPIED, component=pool, request=request_ref(1), free=4)
    for pool in ("full", "swa")
]

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
    healthy(
        ended_requests_are_written_through,
        ending(before=replace(ROOM_FOR_ONE, nodes=()), **HALF),
        "room-for-a-part-of-what-was-inserted",
    ),
    healthy(
        ended_requests_are_written_through,
        without_copy_jobs(copies=((7, 8), ())),
        "a-part-of-its-copy-without-a-view-of-copies",
    ),
    broken(
        ended_requests_are_written_through,
        "no-copy-without-a-view-of-copies",
        without_copy_jobs(copies=((), ())),
        *NO_COPY,
    ),
    broken(
        ended_requests_are_written_through,
        "another-copy-was-under-way",
        ending(before=replace(WRITING_THROUGH, receipts=(*(WRITING_THROUGH.receipts or ()), OTHER_BACKUP))),
        *NO_COPY,
    ),
    broken(
        ended_requests_are_written_through,
        "room-for-the-first-node-alone",
        ending(before=ROOM_FOR_ONE, **HALF),
        found(node_ref(1), WriteThroughCode.NOT_COPIED, component="full", request=request_ref(1), free=2),
    ),
    broken(
        ended_requests_are_written_through,
        "no-copy",
        ending(),
        *NO_COPY,
    ),
    broken(
        ended_requests_are_written_through,
        "no-copy-of-the-window",
        ending(nodes=with_node(WRITING_THROUGH, 2, copies=((7, 8), ()))),
        found(node_ref(2), WriteThroughCode.NOT_COPIED, component="swa", request=request_ref(1), free=4),
    ),
]
