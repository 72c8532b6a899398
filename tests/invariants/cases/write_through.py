"""Nodes that an ended request has inserted, and of which the host gets no copy."""

from dataclasses import replace

from swarden.invariants.contracts.write_through import (
    WriteThroughCode,
    ended_requests_are_written_through,
    idle_copies_give_way,
    prefetches_get_idle_host_memory,
)
from swarden.invariants.events import (
    BACKUP_KIND,
    REQUEST_KIND,
    TREE,
    Finished,
    FinishReason,
    Fired,
    Given,
    Owner,
    PrefetchSized,
)
from swarden.invariants.view import ReceiptView
from swarden.invariants.violation import found, node_ref, pool_ref, request_ref
from tests.invariants.builders import broken, healthy, with_pool
from tests.invariants.host_builders import BEFORE_COPYING, HOST_LIMITS, not_copying, with_node

ENDED = Finished(1, FinishReason.LENGTH)
WRITING_THROUGH = replace(BEFORE_COPYING, limits=HOST_LIMITS._replace(writes_through=True))
NODES = WRITING_THROUGH.node_by_id
GIVEN = Given("full", (*NODES[1].units[0], *NODES[2].units[0]), Owner(REQUEST_KIND, 1), TREE)
LEAF_GIVEN = GIVEN._replace(units=tuple(NODES[2].units[0]))


def ending(*events, before=WRITING_THROUGH, **parts):
    """r1 ends after a step that inserted n2, of which the host has no copy."""
    return not_copying(*(events or (GIVEN, ENDED)), before=before, **{"records": (), **parts})


def without_copy_jobs(*, copies):
    """r1 ends after a step that inserted n2; which copies are under way is not known."""
    return ending(nodes=with_node(WRITING_THROUGH, 2, copies=copies), copy_jobs=None)


UNCOPIED = with_node(WRITING_THROUGH, 1, copies=((), ()))
NO_COPY = [
    found(node_ref(2), WriteThroughCode.NOT_COPIED, component=pool, request=request_ref(1), free=4)
    for pool in ("full", "swa")
]

FULL = with_pool(WRITING_THROUGH, "host full", free=())
IDLE_COPIES = [  # n3 and n4, which is below it
    found(node_ref(2), WriteThroughCode.IDLE_COPIES_STAY, component=pool, request=request_ref(1), free=free)
    for pool, free in (("full", 4), ("swa", 8))
]

CASES = [
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
        "behind-an-uncopied-node",
        ending(LEAF_GIVEN, ENDED, before=replace(WRITING_THROUGH, nodes=UNCOPIED)),
        *NO_COPY,
    ),
    healthy(
        idle_copies_give_way, ending(pools=FULL, nodes=with_node(WRITING_THROUGH, 4, pins=(1, 0))), "copies-are-read"
    ),
    healthy(
        idle_copies_give_way,
        ending(
            pools=FULL,
            nodes=with_node(WRITING_THROUGH, 4, live=(True, True)),
            limits=WRITING_THROUGH.limits._replace(keeps_live_copies=True),
        ),
        "copies-of-live-nodes-stay",
    ),
    broken(idle_copies_give_way, "idle-copies-stay", ending(pools=FULL), *IDLE_COPIES),
    healthy(prefetches_get_idle_host_memory, ending(PrefetchSized(32, 0)), "more-than-the-host-can-drop"),
    healthy(prefetches_get_idle_host_memory, ending(PrefetchSized(24, 24)), "all-that-it-wants"),
    healthy(prefetches_get_idle_host_memory, ending(PrefetchSized(24, 0), Fired("host.fails")), "fault"),
    healthy(
        prefetches_get_idle_host_memory,
        ending(PrefetchSized(12, 0), nodes=with_node(WRITING_THROUGH, 4, pins=(1, 0))),
        "copies-with-locks",
    ),
    healthy(
        prefetches_get_idle_host_memory,
        ending(PrefetchSized(24, 4), receipts=(ReceiptView(9, Owner(BACKUP_KIND, 1), 1, ((1,), ())),)),
        "copy-under-way",
    ),
    broken(
        prefetches_get_idle_host_memory,
        "cut-short",
        ending(PrefetchSized(32, 8)),
        found(pool_ref("host full"), WriteThroughCode.CUT_SHORT, wanted=32, got=8, idle=24),
    ),
]
