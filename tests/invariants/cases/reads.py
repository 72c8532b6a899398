"""Slots with wrong content, and reads that omit tokens that the model sees."""

from array import array

from swarden.invariants.events import Completed, Discarded, Launched, PrefixesCompared, Read, WrongSlot
from swarden.invariants.laws.content.reads import ReadCode, reads_cover_the_window, slots_hold_their_prefix
from swarden.invariants.transition import Transition
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import broken, during, in_flight, tags

LAUNCHED = Launched(7, ((1, 20, 21),))
REQUEST, POOLS = Ref("request", 1), ("full", "swa")


def reading(pool: str, start: int, tagged: "array[int]") -> Read:
    return Read(7, 1, pool, start, tagged, POOLS.index(pool))


def read(pool: str, start: int, tagged: "array[int]") -> Transition:
    return during(LAUNCHED, reading(pool, start, tagged))


def other_content(position: int, place: Ref, *known_from: Ref) -> Found:
    return found(REQUEST, ReadCode.OTHER_CONTENT, position=position, place=place, known_from=known_from)


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
        "compared-prefixes",
        compared(),
        other_content(18, Ref("page", 7, "full"), Ref("request", 2)),
        found(Ref("request", 2), ReadCode.UNWRITTEN, position=3, place=Ref("page", 5, "full")),
    ),
    broken(
        slots_hold_their_prefix,
        "unknown-tag-beyond-the-record",
        read("swa", 24, array("q", [5])),
        other_content(24, Ref("pool", pool="swa")),
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
    broken(
        reads_cover_the_window,
        "not-read-by-a-pass-in-flight",
        in_flight(WHOLE, Completed(7)),
        found(REQUEST, ReadCode.NOT_READ, **NOT_READ),
    ),
]
