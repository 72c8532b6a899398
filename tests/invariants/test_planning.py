"""The naive planner: its reservations, its cuts, and the steps that it cannot predict."""

from dataclasses import replace

import pytest

from swarden.invariants.contracts.demands import Decode, Need, Pager, Prefill
from swarden.invariants.contracts.planning import Stretch, verdicts
from swarden.invariants.events import Finished, Fired
from swarden.invariants.limits import Estimates
from swarden.invariants.view import ComponentView
from tests.invariants.builders import BEFORE, with_pool
from tests.invariants.host_builders import BACKUP_VIEW, BEFORE_COPYING, host_reference

PAGER = Pager(4, (ComponentView("full", None, 4), ComponentView("swa", 17, 4)))


def test_long_input_needs_a_chunk_a_window_and_a_page_of_a_windowed_pool():
    """Input 100, 10 further tokens, chunk 32, window 17: 16 beyond the window, 16 in it and a page."""
    prefill = Prefill(start=0, input_len=100, rest_len=10, estimated_len=10, lookahead=0)

    assert PAGER.of_stretch(prefill, 32) == Need({"full": 8, "swa": 8}, {"full": 28, "swa": 9})


def test_short_request_needs_less_than_a_window():
    """3 tokens and 5 further ones: 8 in the window and a page (sglang issue 32379)."""
    prefill = Prefill(start=8, input_len=11, rest_len=5, estimated_len=0, lookahead=0)

    assert PAGER.of_stretch(prefill, 11) == Need({"full": 1, "swa": 1}, {"full": 1, "swa": 3})


def test_demand_counts_the_lookahead_and_not_the_last_token():
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
def test_stretch_ends_with_the_input_or_with_a_page_if_possible(most, end):
    assert PAGER.cut(6, 11, most) == end


def test_decode_with_a_full_window_needs_no_further_windowed_page():
    """Pages from position 20 on are kept: pages of new tokens replace those that leave the window."""
    full_window = Decode(launched_len=39, allocated_len=40, kept_from=(0, 20), estimated_len=50, lookahead=0)

    assert PAGER.of_decode(full_window) == Need({"full": 0, "swa": 0}, {"full": 13, "swa": 0})
    assert PAGER.of_decode(full_window._replace(kept_from=(0, 24))).demand["swa"] == 1


def test_decode_takes_the_pages_of_its_next_token_and_of_the_lookahead():
    at_the_border = Decode(launched_len=40, allocated_len=40, kept_from=(0, 36), estimated_len=1, lookahead=0)

    assert PAGER.of_decode(at_the_border).firm == {"full": 1, "swa": 1}
    assert PAGER.of_decode(at_the_border._replace(lookahead=4)).firm == {"full": 2, "swa": 2}


def test_stretch_fits_an_empty_windowed_pool():
    """12 pages have 48 tokens, of which the decode needs one page."""
    prefill = Prefill(start=0, input_len=100, rest_len=10, estimated_len=10, lookahead=0)

    assert PAGER.longest_at_once(prefill, {"full": 99, "swa": 12}) == 44
    assert PAGER.longest_at_once(prefill, {"full": 99, "swa": 4}) == 12
    assert PAGER.longest_at_once(prefill, {"full": 99, "swa": 1}) == 4


R1_RUNS, R2_WAITS = BEFORE.requests or ()
R2_WAITS_FOR_THE_HOST = (BEFORE_COPYING.requests or ())[1]
R3_LOADS = R2_WAITS_FOR_THE_HOST._replace(id=3, place="loading")


def predicted(*others, cached=True, events=(), **parts):
    """The verdicts while r1 runs; r2's input starts with n3, and, if `cached`, with n4, which is on the host."""
    nodes = BEFORE_COPYING.nodes if cached else (BEFORE_COPYING.nodes or ())[:3]
    assert BEFORE_COPYING.counters is not None, "the engine gives counters"
    before = replace(
        BEFORE_COPYING,
        nodes=nodes,
        pools=with_pool(BEFORE_COPYING, "swa", free=range(7, 12)),
        requests=(R1_RUNS, *others, R2_WAITS_FOR_THE_HOST),
        limits=BEFORE_COPYING.limits._replace(estimates=Estimates(4096, 700_000, 600)),
        counters=BEFORE_COPYING.counters._replace(exact_ratio=0.5),
        **parts,
    )
    return verdicts(before, events, host_reference().tokens_of)


def test_admission_without_copies_on_the_host_is_predicted():
    """The chunk [8, 16) takes 2 pages of each pool; all 18 tokens and a further one would take 3."""
    need = Need({"full": 2, "swa": 2}, {"full": 3, "swa": 3})

    [verdict] = predicted(cached=False)

    assert (verdict.found, verdict.expected) == (None, Stretch(8, 16, need))


def test_step_in_which_the_other_engine_ends_a_request_is_not_predicted():
    """A fault alone does not show that a batch was planned next."""
    assert predicted(cached=False, events=(Fired("link.reorder"),))
    assert predicted(cached=False, events=(Fired("link.reorder"), Finished(2, "the decode side has ended it"))) == []


def test_possible_load_makes_admission_unpredictable():
    assert predicted() == []


def test_loading_request_makes_admission_unpredictable():
    assert predicted(R3_LOADS, cached=False) == []


def test_copy_in_progress_makes_admission_unpredictable():
    assert predicted(cached=False, copy_jobs=(BACKUP_VIEW,)) == []
