"""Slots that hold something else, writes to what is not one's own, and wrong outputs."""

from array import array
from dataclasses import replace

from invariants.content import (
    clients_get_what_passes_computed,
    every_slot_read_holds_its_prefix,
    outputs_equal_the_reference,
    reads_cover_the_window,
)
from invariants.events import Completed, Discarded, Late, Launched, Read, Retracted, Written
from invariants.reference import Reference
from invariants.view import RequestView
from tests.invariants.builders import FLYING, HEALTHY, broken, during, healthy, in_flight, reference, tags

LAUNCHED = Launched(7, ((1, 20, 21),))
OTHER = reference(22).expectations[2].tags


def read(pool, start, *tagged):
    return during(LAUNCHED, Read(7, 1, pool, start, array("q", [tag for part in tagged for tag in part])))


def written(page, *earlier):
    return during(*earlier, Written(7, 1, "swa", 20, 21, (page,)))


def misheard():
    """The reference of a client to whom the engine sent another last token."""
    heard = reference(21)
    heard.streamed(1, [63 if reference(22).expectations[1].tokens[21] != 63 else 62])
    return heard


SAID, TRUE = misheard().expectations[1].tokens[21], reference(22).expectations[1].tokens[21]

UNFORETOLD = replace(HEALTHY, reference=Reference())

CASES = [
    healthy(every_slot_read_holds_its_prefix),
    broken(
        every_slot_read_holds_its_prefix,
        "unwritten",
        read("full", 16, tags(16, 18), [0], tags(19, 21)),
        ("request r1", "position 18 in full page 7 holds nothing"),
    ),
    broken(
        every_slot_read_holds_its_prefix,
        "of-another",
        read("swa", 16, tags(16, 20), OTHER[3:4]),
        ("request r1", "position 20 in swa page 6 holds what request r2 has at position 3"),
    ),
    broken(
        every_slot_read_holds_its_prefix,
        "of-nobody-and-beyond-its-pages",
        read("swa", 24, [5]),
        ("request r1", "position 24 in swa holds what nobody's tokens give"),
    ),
    healthy(reads_cover_the_window),
    broken(
        reads_cover_the_window,
        "window-cut",
        during(LAUNCHED, Read(7, 1, "full", 0, tags(0, 21)), Read(7, 1, "swa", 16, tags(16, 21))),
        ("request r1", "read [16, 21) of swa, want [15, 21)"),
    ),
    broken(
        reads_cover_the_window,
        "nothing-of-one-pool",
        during(LAUNCHED, Read(7, 1, "swa", 12, tags(12, 21))),
        ("request r1", "read nothing of full, want [0, 21)"),
    ),
    healthy(outputs_equal_the_reference),
    broken(
        outputs_equal_the_reference,
        "another-token",
        replace(HEALTHY, reference=misheard()),
        ("request r1", f"token {SAID} at position 21, the reference says {TRUE}"),
    ),
    healthy(
        every_slot_read_holds_its_prefix,
        during(LAUNCHED, Read(7, 1, "full", 16, array("q", [0, 0, 0, 0, 0])), Discarded(7, 1)),
        "of-what-is-discarded-whatever-it-is",
    ),
    healthy(reads_cover_the_window, FLYING, "of-a-pass-that-was-launched-before"),
    healthy(reads_cover_the_window, in_flight(Read(7, 1, "full", 0, tags(0, 21)), Discarded(7, 1)), "discarded"),
    broken(
        reads_cover_the_window,
        "by-a-pass-that-was-launched-before",
        in_flight(Read(7, 1, "full", 0, tags(0, 21)), Completed(7)),
        ("request r1", "read nothing of swa, want [15, 21)"),
    ),
    healthy(clients_get_what_passes_computed),
    healthy(clients_get_what_passes_computed, FLYING, "one-step-later"),
    broken(
        clients_get_what_passes_computed,
        "of-a-pass-in-flight",
        in_flight(Launched(8, ((1, 21, 22),)), Late(7)),
        ("request r1", "got 1 tokens, 0 results of the step count"),
    ),
    broken(
        clients_get_what_passes_computed,
        "of-what-is-discarded",
        in_flight(Retracted(1, 3, ()), Completed(7), Discarded(7, 1)),
        ("request r1", "got 1 tokens, 0 results of the step count"),
    ),
    broken(
        clients_get_what_passes_computed,
        "more-than-it-asked-for",
        in_flight(before={"requests": (RequestView(1, "running", 0, 18, 3, 3),)}),
        ("request r1", "got 4 tokens, it asked for 3"),
    ),
]
