"""Engines whose memory moves between groups of layers, with rings for windows, and requests that wait with their KV."""

from dataclasses import replace

import pytest

from swarden.harness.report.wording import evidence_text, subject_text
from swarden.invariants.catalog import Tally, catalog_of
from swarden.invariants.events import ABSENT, GROUP_KIND, SWAP_KIND, Freed, Owner, Retracted, Taken
from swarden.invariants.kinds import Place
from swarden.invariants.limits import Limits
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import ComponentView, Holding, PoolView, RecordView, RequestView, Snapshot

R1, R2, FULL, RING = Owner("request", 1), Owner("request", 2), Owner(GROUP_KIND, 1), Owner(GROUP_KIND, 2)
WINDOW = 6  # in two blocks of four slots; the last two slots are never used
RECORD = RecordView(R1, 0, 0, 8, 8, 8, (0, 0), ((1, 2), (3, 2)), (), 0, 0)
RUNNING, PARKED = RequestView(1, Place.RUNNING, 0, 8, 0, 9), RequestView(2, Place.SWAPPED, 0, 4, 1, 9)
# Four sectors, each with two blocks of the full group or one of the ring: full has sector 1, the ring 2 and 3.
STATE = Snapshot(
    step=1,
    limits=Limits(4, 8, 64, 16),
    components=(ComponentView("full", None, 4), ComponentView("ring", WINDOW, 4, is_ring=True)),
    pools=(
        PoolView("full", "block", 8, (), (), [Holding(R1, (1, 2), False), Holding(ABSENT, range(3, 9), False)]),
        PoolView("ring", "block", 4, (), (), [Holding(R1, (3, 2), False), Holding(ABSENT, (1, 4), False)]),
        PoolView("sectors", "sector", 4, (4,), (), [Holding(FULL, (1,), False), Holding(RING, (2, 3), False)]),
        PoolView("host full", "block", 2, (2,), (), [Holding(Owner(SWAP_KIND, 2), (1,), False)]),
    ),
    records=(RECORD,),
    requests=(RUNNING, PARKED),
)
IDLE = replace(
    STATE,
    pools=(
        PoolView("full", "block", 8, (), (), [Holding(ABSENT, range(1, 9), False)]),
        PoolView("ring", "block", 4, (), (), [Holding(ABSENT, range(1, 5), False)]),
        PoolView("sectors", "sector", 4, (1, 2, 3, 4), (), ()),
        PoolView("host full", "block", 2, (1, 2), (), ()),
    ),
    records=(),
    requests=(),
)
MOVED = (Taken("sectors", (4,), FULL), Freed("full", (7, 8), ABSENT, "assigned", 0), Taken("full", (8,), R1))


def violations(before, after, *events, when=When.STEP):
    """What the laws find, as text."""
    found = catalog_of(frozenset()).check(Transition(before, events, after, when), Tally())
    return [f"{one.law}: {subject_text(one.subject)}: {evidence_text(one)}" for one in found]


def with_record(**changes):
    return replace(STATE, records=(RECORD._replace(**changes),))


def with_pool(state, name, **changes):
    return replace(state, pools=tuple([replace(one, **changes) if one.name == name else one for one in state.pools]))


def test_memory_that_moves_to_a_group_breaks_no_law():
    full = [Holding(R1, (1, 2, 8), False), Holding(ABSENT, range(3, 7), False)]
    sectors = [Holding(FULL, (1, 4), False), Holding(RING, (2, 3), False)]
    after = with_pool(with_pool(STATE, "full", free=(7,), holdings=full), "sectors", free=(), holdings=sectors)
    after = replace(after, records=with_record(units=((1, 2, 8), (3, 2)), allocated_len=12).records)

    assert violations(STATE, after, *MOVED) == []


def test_drained_engine_has_all_memory_in_no_group():
    assert violations(STATE, IDLE, when=When.QUIESCENT)[:1] == violations(IDLE, IDLE, when=When.QUIESCENT) == []


@pytest.mark.parametrize(
    ("after", "violation"),
    [
        pytest.param(
            with_pool(STATE, "full", holdings=[Holding(R1, (1, 2), False), Holding(ABSENT, range(4, 9), False)]),
            "unit_has_one_owner: full block 3: no owner",
            id="lost-by-the-group",
        ),
        pytest.param(
            with_pool(STATE, "full", free=(3,)),
            "unit_has_one_owner: full block 3: owned by absent and free",
            id="free-without-memory",
        ),
        pytest.param(
            with_pool(STATE, "sectors", free=(3, 4)),
            "unit_has_one_owner: sector 3: owned by free and group g2",
            id="sector-of-a-group-is-free",
        ),
        pytest.param(
            with_record(units=((1, 2), (3,))),
            "rows_match_their_records: request r1: has 1 ring pages for allocated_len 8",
            id="ring-too-short",
        ),
        pytest.param(
            with_record(units=((1, 2), (3, 3))),
            "unit_stands_in_one_table_place: ring block 3: "
            "in the tables of request r1 and request r1, at page indices 0, 1",
            id="block-twice-in-a-ring",
        ),
        pytest.param(
            with_record(units=((1, 2), (3, 0))),
            "private_pages_match_frontier: request r1: no ring page for positions [4, 8)",
            id="hole-in-a-ring",
        ),
    ],
)
def test_law_finds_wrong_memory(after, violation):
    assert violation in violations(STATE, after)


@pytest.mark.parametrize(
    ("ring", "found"),
    [
        pytest.param((0, 2), ["request r1: no ring page for its last token, at position 7"], id="slot-1-missing"),
        pytest.param((3, 0), [], id="another-slot-missing"),
    ],
)
def test_last_token_of_a_ring_is_in_the_slot_of_its_position(ring, found):
    """Position 7 is in slot 1 of a ring of six, on its first page."""
    law = "last_token_keeps_its_page: "
    told = [one for one in violations(STATE, with_record(units=((1, 2), ring))) if one.startswith(law)]

    assert told == [law + one for one in found]


@pytest.mark.parametrize("place", [Place.SWAPPED, Place.WAITING])
def test_request_that_waits_with_its_kv_holds_only_the_copy(place):
    after = replace(STATE, requests=(RUNNING, PARKED._replace(place=place)))

    assert violations(STATE, after, Retracted(2, 1, ())) == []


def test_ring_has_the_page_of_a_position_modulo_its_window():
    ring = STATE.components[1]

    assert [ring.page_index(position) for position in range(8)] == [0, 0, 0, 0, 1, 1, 0, 0]
    assert [ring.slot_len(length) for length in (5, 6, 7)] == [5, 6, 6]
