"""Slots that hold something else, writes to what is not one's own, and wrong outputs."""

from array import array
from dataclasses import replace

from invariants.content import (
    every_slot_read_holds_its_prefix,
    outputs_equal_the_reference,
    reads_cover_the_window,
    writes_go_to_private_units,
)
from invariants.events import Freed, Given, Launched, Read, Taken, Written
from invariants.reference import Reference
from tests.invariants.builders import HEALTHY, R1, TREE, broken, during, healthy, reference, tags

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
    healthy(writes_go_to_private_units),
    broken(
        writes_go_to_private_units,
        "the-tree's",
        written(5, Given("swa", (5,), R1, TREE)),
        ("swa page 5", "written by request r1 for [20, 21), yet it is owned by tree"),
    ),
    broken(
        writes_go_to_private_units,
        "free",
        written(6, Taken("swa", (6,), R1), Freed("swa", (6,), R1, "slid", 0)),
        ("swa page 6", "written by request r1 for [20, 21), yet it is free"),
    ),
    broken(
        writes_go_to_private_units,
        "padding",
        written(0),
        ("swa page 0", "written by request r1 for [20, 21), yet it is padding"),
    ),
    healthy(outputs_equal_the_reference),
    broken(
        outputs_equal_the_reference,
        "another-token",
        replace(HEALTHY, reference=misheard()),
        ("request r1", f"token {SAID} at position 21, the reference says {TRUE}"),
    ),
]

UNFORETOLD = replace(HEALTHY, reference=Reference())
