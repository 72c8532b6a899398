"""The naive planner: its reservations, its cuts, and the steps that it does not foretell."""

from dataclasses import replace

import pytest

from invariants.contracts.demands import Decode, Need, Pager, Prefill
from invariants.contracts.planning import Stretch, Verdict, verdicts
from invariants.events import Finished, Fired
from invariants.limits import Estimates
from invariants.view import ComponentView
from tests.invariants.builders import BEFORE, swapped
from tests.invariants.host_builders import BACKUP_VIEW, SHELVED, asked

PAGER = Pager(4, (ComponentView("full", None), ComponentView("swa", 17)))


def test_a_long_input_needs_a_chunk_a_window_and_a_page_of_a_windowed_pool():
    """Extend 100 with 10 to come, chunk 32, window 17: 16 beyond the window, 16 in it and a page."""
    prefill = Prefill(start=0, input_len=100, rest_len=10, estimated_len=10, lookahead=0)

    assert PAGER.of_stretch(prefill, 32) == Need({"full": 8, "swa": 8}, {"full": 28, "swa": 9})


def test_a_short_resume_needs_no_whole_window():
    """3 tokens and 5 to come: 8 in the window and a page (sglang issue 32379)."""
    prefill = Prefill(start=8, input_len=11, rest_len=5, estimated_len=0, lookahead=0)

    assert PAGER.of_stretch(prefill, 11) == Need({"full": 1, "swa": 1}, {"full": 1, "swa": 3})


def test_a_demand_counts_the_lookahead_and_not_the_last_token():
    prefill = Prefill(start=0, input_len=8, rest_len=1, estimated_len=1, lookahead=0)

    assert PAGER.of_stretch(prefill, 8).demand["full"] == 2
    assert PAGER.of_stretch(prefill._replace(estimated_len=2), 8).demand["full"] == 3
    assert PAGER.of_stretch(prefill._replace(lookahead=5), 8).demand["full"] == 4


@pytest.mark.parametrize(
    ("most", "end"),
    [
        pytest.param(5, 11, id="whole"),
        pytest.param(4, 8, id="on-a-page-boundary"),
        pytest.param(1, 7, id="inside-a-page"),
    ],
)
def test_a_stretch_ends_with_the_input_or_with_a_page_if_possible(most, end):
    assert PAGER.cut(6, 11, most) == end


def test_a_window_does_not_grow_beyond_itself_and_a_page():
    """18 tokens, all of the window kept: new tokens replace those that leave the window."""
    full_window = Decode(launched_len=39, allocated_len=40, kept_from=20, estimated_len=50, lookahead=0)

    assert PAGER.of_decode(full_window) == Need({"full": 0, "swa": 0}, {"full": 13, "swa": 0})
    assert PAGER.of_decode(full_window._replace(kept_from=24)).demand["swa"] == 1


def test_a_decode_takes_the_page_of_its_next_token_and_of_the_lookahead():
    at_the_border = Decode(launched_len=40, allocated_len=40, kept_from=36, estimated_len=1, lookahead=0)

    assert PAGER.of_decode(at_the_border).firm == {"full": 1, "swa": 1}
    assert PAGER.of_decode(at_the_border._replace(lookahead=4)).firm == {"full": 2, "swa": 2}


def test_a_stretch_is_no_longer_than_an_empty_windowed_pool_can_take():
    """12 pages: 48 tokens, of which a window and a page are for the decode."""
    prefill = Prefill(start=0, input_len=100, rest_len=10, estimated_len=10, lookahead=0)

    assert PAGER.longest_at_once(prefill, {"full": 99, "swa": 12}) == 44
    assert PAGER.longest_at_once(prefill, {"full": 99, "swa": 4}) == 12
    assert PAGER.longest_at_once(prefill, {"full": 99, "swa": 1}) == 4


R1_RUNS, R2_WAITS = BEFORE.requests or ()
R2_WAITS_FOR_THE_HOST = (SHELVED.requests or ())[1]
R3_LOADS = R2_WAITS_FOR_THE_HOST._replace(id=3, place="loading")


def foretold(*others, cached=True, events=(), **parts):
    """The verdicts while r1 runs: r2 asks for what n3 holds, and n4, which the host has where it is `cached`."""
    nodes = SHELVED.nodes if cached else (SHELVED.nodes or ())[:3]
    assert SHELVED.claims is not None, "the engine makes claims"
    before = replace(
        SHELVED,
        nodes=nodes,
        pools=swapped(SHELVED, "swa", free=range(7, 12)),
        requests=(R1_RUNS, *others, R2_WAITS_FOR_THE_HOST),
        limits=SHELVED.limits._replace(estimates=Estimates(4096, 700_000, 600)),
        claims=SHELVED.claims._replace(exact_ratio=0.5),
        **parts,
    )
    return verdicts(before, events, asked().tokens_of)


def test_without_copies_on_the_host_admission_is_foretold():
    """18 tokens and one to come, [8, 16) in this chunk: of swa 3 beyond the window, 5 in it and a page."""
    need = Need({"full": 2, "swa": 2}, {"full": 3, "swa": 3})

    assert foretold(cached=False) == [Verdict(2, None, Stretch(8, 16, need))]


def test_a_request_ended_by_the_other_engine_is_not_planned():
    """A fault alone does not tell that a batch was planned next."""
    assert foretold(cached=False, events=(Fired("link.reorder"),))
    assert foretold(cached=False, events=(Fired("link.reorder"), Finished(2, "the decode side has ended it"))) == []


def test_a_possible_load_makes_admission_unforeseeable():
    assert foretold() == []


def test_a_loading_request_makes_admission_unforeseeable():
    assert foretold(R3_LOADS, cached=False) == []


def test_a_copy_under_way_makes_admission_unforeseeable():
    assert foretold(cached=False, transfers=(BACKUP_VIEW,)) == []
