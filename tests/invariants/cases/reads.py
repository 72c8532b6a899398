"""Slots with wrong content, and reads that omit tokens that the model sees."""

from array import array
from dataclasses import replace

from swarden.invariants.events import Completed, Discarded, Launched, PrefixesCompared, Proposed, Read, WrongSlot
from swarden.invariants.laws.content.reads import ReadCode, reads_cover_the_window, slots_hold_their_prefix
from swarden.invariants.reference import next_tag
from swarden.invariants.transition import Transition
from swarden.invariants.view import ComponentView
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import (
    AFTER,
    BEFORE,
    OVERLAPPED_STEP,
    PAGE,
    WINDOW,
    broken,
    during,
    healthy,
    in_flight,
    reference,
    tags,
)

LAUNCHED = Launched(7, ((1, 20, 21),))
DRAFT = array("q", [next_tag(tags(20, 21)[0], 30)])  # the tag of draft token 30 behind r1's position 20
OTHER = reference(22).expectations[2].tags
REQUEST, POOLS = Ref("request", 1), ("full", "swa")
SWA = POOLS.index("swa")


def reading(pool: str, start: int, tagged: "array[int]") -> Read:
    return Read(7, 1, pool, start, tagged, POOLS.index(pool))


def read(pool: str, start: int, tagged: "array[int]") -> Transition:
    return during(LAUNCHED, reading(pool, start, tagged))


def other_content(position: int, place: Ref, *known_from: Ref) -> Found:
    return found(REQUEST, ReadCode.OTHER_CONTENT, position=position, place=place, known_from=known_from)


def of_one_pool(*reads: Read) -> Transition:
    """The pass of the healthy step in an engine whose two components share one pool."""
    shared = (ComponentView("full", None, PAGE), ComponentView("full", WINDOW, PAGE))
    states = [replace(one, components=shared) for one in (BEFORE, AFTER)]
    return replace(during(LAUNCHED, *reads), before=states[0], after=states[1])


def compared(*events: Discarded) -> Transition:
    """A pass in which r1 reads a page of r2 and a page without KV."""
    wrong = (WrongSlot(1, 18, 7, True, (2,)), WrongSlot(2, 3, 5, False))
    return during(LAUNCHED, PrefixesCompared(7, "full", wrong), *events)


WHOLE = reading("full", 0, tags(0, 21))
NOT_READ = {"place": Ref("pool", pool="swa"), "want_start": 15, "want_end": 21}

CASES = [
    broken(
        slots_hold_their_prefix,
        "unwritten",
        read("full", 16, tags(16, 18) + array("q", [0]) + tags(19, 21)),
        found(REQUEST, ReadCode.UNWRITTEN, position=18, place=Ref("page", 7, "full")),
    ),
    broken(
        slots_hold_their_prefix,
        "kv-of-another-request",
        read("swa", 16, tags(16, 20) + OTHER[3:4]),
        other_content(20, Ref("page", 6, "swa"), Ref("request", 2)),
    ),
    broken(
        slots_hold_their_prefix,
        "compared-prefixes",
        compared(),
        other_content(18, Ref("page", 7, "full"), Ref("request", 2)),
        found(Ref("request", 2), ReadCode.UNWRITTEN, position=3, place=Ref("page", 5, "full")),
    ),
    healthy(slots_hold_their_prefix, compared(Discarded(7, 1), Discarded(7, 2)), "compared-prefixes-of-discarded"),
    broken(
        slots_hold_their_prefix,
        "unknown-tag-beyond-the-record",
        read("swa", 24, array("q", [5])),
        other_content(24, Ref("pool", pool="swa")),
    ),
    healthy(
        slots_hold_their_prefix,
        during(LAUNCHED, Proposed(7, 1, (30,)), reading("full", 16, tags(16, 21) + DRAFT)),
        "draft-position",
    ),
    broken(
        slots_hold_their_prefix,
        "kv-of-another-draft",
        during(LAUNCHED, Proposed(7, 1, (31,)), reading("full", 16, tags(16, 21) + DRAFT)),
        other_content(21, Ref("page", 8, "full")),
    ),
    healthy(
        slots_hold_their_prefix,
        during(LAUNCHED, Proposed(7, 1, (30,)), reading("swa", 21, array("q"))),
        "no-tag-before-a-draft",
    ),
    healthy(
        slots_hold_their_prefix,
        during(LAUNCHED, reading("full", 16, array("q", [0, 0, 0, 0, 0])), Discarded(7, 1)),
        "discarded-result",
    ),
    broken(
        slots_hold_their_prefix,
        "second-component-of-a-pool",
        of_one_pool(Read(7, 1, "full", 20, array("q", [0]), SWA)),
        found(REQUEST, ReadCode.UNWRITTEN, position=20, place=Ref("page", 6, "full")),
    ),
    broken(
        slots_hold_their_prefix,
        "beyond-the-record-in-a-shared-pool",
        of_one_pool(Read(7, 1, "full", 24, array("q", [0]), SWA)),
        found(REQUEST, ReadCode.UNWRITTEN, position=24, place=Ref("group", SWA, "full")),
    ),
    broken(
        reads_cover_the_window,
        "part-of-the-window-not-read",
        during(LAUNCHED, WHOLE, reading("swa", 16, tags(16, 21))),
        found(REQUEST, ReadCode.READ_IN_PART, start=16, end=21, **NOT_READ),
    ),
    broken(
        reads_cover_the_window,
        "pool-not-read",
        during(LAUNCHED, reading("swa", 12, tags(12, 21))),
        found(REQUEST, ReadCode.NOT_READ, place=Ref("pool", pool="full"), want_start=0, want_end=21),
    ),
    healthy(reads_cover_the_window, OVERLAPPED_STEP, "pass-in-flight"),
    healthy(reads_cover_the_window, in_flight(WHOLE, Discarded(7, 1)), "discarded-result"),
    broken(
        reads_cover_the_window,
        "not-read-by-a-pass-in-flight",
        in_flight(WHOLE, Completed(7)),
        found(REQUEST, ReadCode.NOT_READ, **NOT_READ),
    ),
    healthy(
        reads_cover_the_window,
        of_one_pool(WHOLE, Read(7, 1, "full", 15, tags(15, 21), SWA)),
        "two-components-share-a-pool",
    ),
    broken(
        reads_cover_the_window,
        "part-of-the-window-not-read-in-a-shared-pool",
        of_one_pool(Read(7, 1, "full", 16, tags(16, 21), SWA), WHOLE),
        found(REQUEST, ReadCode.READ_IN_PART, start=16, end=21, **NOT_READ | {"place": Ref("group", SWA, "full")}),
    ),
]
