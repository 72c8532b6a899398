"""Slots that hold something else, writes to what is not one's own, and wrong outputs."""

from array import array
from dataclasses import replace

from invariants.content import (
    clients_get_what_passes_computed,
    every_slot_read_holds_its_prefix,
    logits_are_those_without_a_cache,
    outputs_are_those_without_a_cache,
    outputs_equal_the_reference,
    reads_cover_the_window,
)
from invariants.events import (
    Compared,
    Completed,
    Discarded,
    Late,
    Launched,
    Proposed,
    Read,
    Retracted,
    TakenOver,
    Verified,
    Written,
)
from invariants.reference import Reference, next_tag
from invariants.view import RequestView
from tests.invariants.builders import BEFORE, FLYING, HEALTHY, broken, during, healthy, idle, in_flight, reference, tags

LAUNCHED = Launched(7, ((1, 20, 21),))
DRAFT = array("q", [next_tag(tags(20, 21)[0], 30)])  # what token 30 leaves behind r1's position 20
OTHER = reference(22).expectations[2].tags


def read(pool, start, *tagged):
    return during(LAUNCHED, Read(7, 1, pool, start, array("q", [tag for part in tagged for tag in part])))


def written(page, *earlier):
    return during(*earlier, Written(7, 1, "swa", 20, 21, (page,)))


def compared(*later, **changes):
    """A step in which position 20 was computed by a model, rightly but for these changes."""
    token = reference(22).expectations[1].tokens[21]
    healthy_one = Compared(7, 1, 20, 21, 20, 3e-15, 1e-9, token, token)
    return during(LAUNCHED, healthy_one._replace(**changes), *later)


def misheard():
    """The reference of a client to whom the engine sent another last token."""
    heard = reference(21)
    heard.streamed(1, [63 if reference(22).expectations[1].tokens[21] != 63 else 62])
    return heard


def taken_over(*tokens):
    """r1, of whom another engine has computed the prompt and the first token, which its client gets now."""
    before = replace(BEFORE, requests=(RequestView(1, "linked", 0, 18, 0, 9),))
    return replace(idle(TakenOver(1, 18, tokens), before=before), reference=reference(19))


SAID, TRUE = misheard().expectations[1].tokens[21], reference(22).expectations[1].tokens[21]

COMPARED = compared()
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
    healthy(
        every_slot_read_holds_its_prefix,
        during(LAUNCHED, Proposed(7, 1, (30,)), Read(7, 1, "full", 16, tags(16, 21) + DRAFT)),
        "of-a-draft-whatever-comes-of-it",
    ),
    broken(
        every_slot_read_holds_its_prefix,
        "of-another-draft",
        during(LAUNCHED, Proposed(7, 1, (31,)), Read(7, 1, "full", 16, tags(16, 21) + DRAFT)),
        ("request r1", "position 21 in full page 8 holds what nobody's tokens give"),
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
    healthy(logits_are_those_without_a_cache, COMPARED),
    healthy(logits_are_those_without_a_cache, compared(difference=1e-9), "as-far-off-as-may-be"),
    healthy(logits_are_those_without_a_cache, compared(Discarded(7, 1), difference=float("nan")), "discarded"),
    healthy(logits_are_those_without_a_cache, compared(difference=None), "not-asked-for"),
    broken(
        logits_are_those_without_a_cache,
        "too-far-off",
        compared(start=16, position=18, difference=0.25),
        ("request r1", "computed [16, 21): the logits at position 18 are off by 0.25, want at most 1e-09"),
    ),
    broken(
        logits_are_those_without_a_cache,
        "not-a-number",
        compared(difference=float("nan")),
        ("request r1", "computed [20, 21): the logits at position 20 are off by nan, want at most 1e-09"),
    ),
    healthy(outputs_are_those_without_a_cache, COMPARED),
    healthy(outputs_are_those_without_a_cache, compared(token=None, likeliest=None), "nothing-sampled"),
    healthy(outputs_are_those_without_a_cache, compared(Discarded(7, 1), token=1, likeliest=2), "discarded"),
    broken(
        outputs_are_those_without_a_cache,
        "another-sampled-and-another-streamed",
        compared(token=1, likeliest=2),
        ("request r1", "token 1 at position 21, the likeliest is 2"),
        ("request r1", f"token {TRUE} at position 21, the likeliest is 2"),
    ),
    broken(
        outputs_are_those_without_a_cache,
        "another-streamed",
        replace(COMPARED, reference=misheard()),
        ("request r1", f"token {SAID} at position 21, the likeliest is {TRUE}"),
    ),
    healthy(clients_get_what_passes_computed),
    healthy(clients_get_what_passes_computed, FLYING, "one-step-later"),
    healthy(
        clients_get_what_passes_computed,
        replace(in_flight(Verified(7, 1, 1, (30, 9)), Completed(7)), reference=reference(23)),
        "a-draft-too",
    ),
    broken(
        clients_get_what_passes_computed,
        "a-draft-that-was-not-accepted",
        replace(in_flight(Verified(7, 1, 0, (30, 9)), Completed(7)), reference=reference(23)),
        ("request r1", "got 2 tokens, 1 results of the step count"),
    ),
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
    healthy(
        clients_get_what_passes_computed,
        taken_over(reference(19).expectations[1].tokens[18]),
        "what-another-engine-has-computed",
    ),
    broken(
        clients_get_what_passes_computed,
        "more-than-was-taken-over",
        taken_over(),
        ("request r1", "got 1 tokens, 0 results of the step count"),
    ),
]
