"""Copies that differ from their source."""

from swarden.invariants.events import Copied, Received
from swarden.invariants.laws.content.copies import CopyCode, copies_equal_their_source, pages_arrive_as_they_were_sent
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import broken, during, healthy, page
from tests.invariants.host_builders import while_copying


def differs(pool, here, there):
    return found(page(pool, here), CopyCode.DIFFERS, copy=page(f"host {pool}", there))


CASES = [
    broken(
        copies_equal_their_source,
        "contents-differ",
        while_copying(Copied(1, "full", ((4, 8),)), Copied(1, "swa", ()), Copied(2, "swa", ((7, 3), (8, 4)))),
        differs("full", 4, 8),
        differs("swa", 7, 3),
        differs("swa", 8, 4),
    ),
    healthy(pages_arrive_as_they_were_sent, during(Received(1, "full", ()))),
    broken(
        pages_arrive_as_they_were_sent,
        "changed",
        during(Received(1, "full", (6,))),
        found(page("full", 6), CopyCode.CHANGED_ON_THE_WAY, request=Ref("request", 1)),
    ),
]
