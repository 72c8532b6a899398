"""KV events that are missing, or that report a change that did not happen."""

from dataclasses import replace

from swarden.invariants.events import Dropped, Inserted, Split, Stored
from swarden.invariants.laws.memory.kv_events import EventCode, cached_units_were_inserted, kv_events_match_tree
from swarden.invariants.violation import found, node_ref, pool_ref
from tests.invariants.builders import PROMPT, broken, during, healthy, reference
from tests.invariants.host_builders import COPYING_ENDS, while_copying

INSERTED = Inserted(1, 0, 0, 24)
OF_R1 = tuple(reference(24).expectations[1].tokens[16:24])
NEW_NODE = Stored(9, 2, 0, 16, OF_R1, "full", on_host=False), Stored(9, 2, 0, 16, OF_R1, "swa", on_host=False)
OTHER_BRANCH = Stored(9, 3, 0, 8, PROMPT[:8], "full", on_host=False)
OTHER_NAMESPACE = Stored(8, 0, 5, 0, PROMPT[:8], "full", on_host=False)


def changed(pool, code, gained, reported):
    return found(pool_ref(pool), code, gained=gained, reported=reported)


CASES = [
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
    healthy(
        cached_units_were_inserted,
        during(
            Dropped(3, 8, "full", on_host=False),
            Dropped(3, 8, "swa", on_host=False),
            Stored(3, 0, 0, 0, PROMPT[:8], "full", on_host=False),
            Stored(3, 0, 0, 0, PROMPT[:8], "swa", on_host=False),
            INSERTED,
        ),
        "demoted-and-inserted-again",
    ),
    broken(
        cached_units_were_inserted,
        "nothing-inserted",
        during(*NEW_NODE),
        found(node_ref(9), EventCode.NOT_INSERTED, component="full"),
        found(node_ref(9), EventCode.NOT_INSERTED, component="swa"),
    ),
    broken(
        cached_units_were_inserted,
        "beside-other-insertions",
        during(INSERTED, *NEW_NODE, Inserted(2, 0, 0, 16)),
        found(node_ref(9), EventCode.NOT_INSERTED, component="full"),
        found(node_ref(9), EventCode.NOT_INSERTED, component="swa"),
    ),
    broken(
        cached_units_were_inserted,
        "before-an-insertion-of-other-tokens",
        during(*NEW_NODE, OTHER_BRANCH, OTHER_NAMESPACE, INSERTED),
        found(node_ref(9), EventCode.NOT_INSERTED, component="full"),
        found(node_ref(8), EventCode.NOT_INSERTED, component="full"),
    ),
    broken(
        cached_units_were_inserted,
        "upper-part-of-a-tombstone-has-not-recovered",
        during(Split(1, 9, 4), Stored(9, 0, 0, 0, PROMPT[:4], "swa", on_host=False), INSERTED),
        found(node_ref(9), EventCode.NOT_RECOVERED, component="swa"),
    ),
]
