"""Probes: each is seen where its rare state was, and not elsewhere."""

from dataclasses import replace

import pytest

from harness.probes import ENGINE_PROBES, Watch
from invariants.events import (
    Admitted,
    Evicted,
    Finished,
    Freed,
    Matched,
    Parked,
    Recovered,
    Rejected,
    Retracted,
    Slid,
    Split,
    Taken,
)
from invariants.view import RequestView
from tests.invariants.builders import AFTER, PROMPT, R1, idle

ADMITTED = Admitted(1, 0, 4, (("full", 1),), (("full", 1),))
CHUNKED = replace(AFTER, requests=(RequestView(1, "chunked", 0, 18, 0, 9),))
WIDE_PAGE = replace(AFTER, limits=AFTER.limits._replace(page_size=8))
WITH_A_TOMBSTONE = Matched(2, 0, PROMPT[:12], 0, ())


def seen(*changes):
    """What one run has seen after these transitions."""
    watch = Watch()
    for change in changes:
        watch.look(change)
    return watch.seen


@pytest.mark.parametrize(
    ("changes", "probes"),
    [
        pytest.param([idle()], set(), id="nothing"),
        pytest.param([idle(Parked(1, 8))], {"chunk_parked"}, id="parked"),
        pytest.param([idle(ADMITTED)], set(), id="admitted without having been parked"),
        pytest.param(
            [idle(Parked(1, 8)), idle(ADMITTED)], {"chunk_parked", "parked_chunk_progressed"}, id="parked and on"
        ),
        pytest.param([idle(Retracted(1, 2, ()))], {"retracted"}, id="retracted"),
        pytest.param(
            [idle(Retracted(2, 2, ()), before=CHUNKED)],
            {"retracted", "retracted_with_an_unfinished_chunk"},
            id="retracted beside a chunk",
        ),
        pytest.param([idle(Recovered(1, "swa", False))], {"tombstone_recovered"}, id="recovered"),
        pytest.param(
            [idle(Recovered(1, "swa", True))], {"tombstone_recovered_over_a_locked_node"}, id="recovered under a lock"
        ),
        pytest.param([idle(WITH_A_TOMBSTONE)], {"match_cut_short_by_a_tombstone"}, id="match cut short"),
        pytest.param([idle(WITH_A_TOMBSTONE._replace(length=8))], set(), id="whole match"),
        pytest.param([idle(Evicted((), (), ()))], set(), id="evicted"),
        pytest.param(
            [idle(Evicted((), (), ()), before=CHUNKED)], {"evicted_inside_a_running_prefill"}, id="evicted in a prefill"
        ),
        pytest.param([idle(Split(2, 9, 4))], {"node_split_under_lock"}, id="split under a lock"),
        pytest.param([idle(Split(3, 9, 4))], set(), id="split without one"),
        pytest.param([idle(Slid(1, 0, 4))], {"slid_with_window_above_page"}, id="slid"),
        pytest.param([idle(Slid(1, 0, 8), before=WIDE_PAGE)], {"slid_with_page_at_least_window"}, id="slid, wide"),
        pytest.param([idle(Finished(2, "abort"))], {"abort_while_waiting"}, id="abort"),
        pytest.param([idle(Finished(1, "timeout"))], {"timeout_while_running"}, id="timeout"),
        pytest.param([idle(Finished(1, "stop"))], set(), id="finished"),
        pytest.param([idle(Finished(1, "out of memory: no page"))], {"ended_out_of_memory"}, id="out of memory"),
        pytest.param([idle(Rejected(3, 99, 1, "too long"))], {"rejected_at_arrival"}, id="rejected"),
        pytest.param(
            [idle(Freed("full", (9,), R1, "slid", 0)), idle(), idle(Taken("full", (9,), R1))],
            {"unit_taken_again_soon"},
            id="taken again two steps later",
        ),
        pytest.param(
            [idle(Freed("full", (9,), R1, "slid", 0)), idle(), idle(), idle(Taken("full", (9,), R1))],
            set(),
            id="taken again three steps later",
        ),
    ],
)
def test_a_probe_is_seen_where_its_state_was(changes, probes):
    """Exactly these, and nothing else."""
    assert seen(*changes) == probes


def test_every_probe_with_a_floor_has_a_name_of_its_own():
    """A floor on a name that nobody notes would be red for ever."""
    assert len(set(ENGINE_PROBES)) == len(ENGINE_PROBES)
