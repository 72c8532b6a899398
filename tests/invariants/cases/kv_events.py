"""KV events that are missing, or that report a change that did not happen."""

from dataclasses import replace

from invariants.events import Dropped, Stored
from invariants.laws.memory.kv_events import EventCode, kv_events_match_tree
from invariants.violation import found, pool_ref
from tests.invariants.builders import PROMPT, broken, healthy
from tests.invariants.host_builders import COPYING_ENDS, R2_PROMPT, not_copying, while_copying


def changed(pool, code, gained, reported):
    return found(pool_ref(pool), code, gained=gained, reported=reported)


CASES = [
    healthy(kv_events_match_tree, COPYING_ENDS),
    healthy(
        kv_events_match_tree,
        not_copying(Stored(9, 0, 0, 0, R2_PROMPT[:8], "full", on_host=False), Dropped(9, 8, "full", on_host=False)),
        "stored-and-dropped",
    ),
    broken(
        kv_events_match_tree,
        "missing-events",
        replace(COPYING_ENDS, events=()),
        changed("full", EventCode.NOT_REPORTED, 2, 0),
        changed("swa", EventCode.NOT_REPORTED, 2, 0),
        changed("host full", EventCode.NOT_REPORTED, 2, 0),
        changed("host swa", EventCode.NOT_REPORTED, 2, 0),
    ),
    broken(
        kv_events_match_tree,
        "events-without-a-change",
        while_copying(Dropped(3, 8, "full", on_host=False), Stored(2, 1, 0, 8, PROMPT[8:16], "full", on_host=True)),
        changed("full", EventCode.REPORTED_NOT_DONE, 0, -2),
        changed("host full", EventCode.REPORTED_NOT_DONE, 0, 2),
    ),
]
