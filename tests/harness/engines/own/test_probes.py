"""Probes: each is reached by its rare state and by no similar state."""

from dataclasses import replace

import pytest

from swarden.harness.engines.own.probes import ENGINE_PROBES, ProbeWatch
from swarden.invariants.events import (
    Admitted,
    Completed,
    CopyBegan,
    CopyDropped,
    CopyEnded,
    Discarded,
    Evicted,
    Failed,
    Finished,
    Fired,
    Freed,
    Late,
    Launched,
    LoadPlanned,
    Matched,
    Parked,
    Paused,
    Preempted,
    RanOut,
    Recovered,
    Refused,
    Rejected,
    Retracted,
    Slid,
    Split,
    Taken,
)
from swarden.invariants.transition import Transition
from swarden.invariants.view import RequestView
from tests.invariants.builders import AFTER, PROMPT, R1, idle
from tests.invariants.host_builders import COPYING

ADMITTED = Admitted(1, 0, 4, (("full", 1),), (("full", 1),))
CHUNKED = replace(AFTER, requests=(RequestView(1, "chunked", 0, 18, 0, 9),))
WIDE_PAGE = replace(AFTER, limits=AFTER.limits._replace(page_size=8))
BACKUP, LOAD = (view.id for view in COPYING.copy_jobs or ())
WITH_A_TOMBSTONE = Matched(2, 0, PROMPT[:12], 0, ())
PREFILL = Admitted(2, 0, 4, (), ())
NEXT_CHUNK = Admitted(2, 4, 5, (), ())
FIRST_PASS = idle(PREFILL, Launched(7, ((2, 0, 4),)))
WITH_LOOKAHEAD_PAGE = replace(AFTER, records=((AFTER.records or ())[0]._replace(allocated_len=25),))
WITH_LOOKAHEAD_ON_ITS_PAGE = replace(AFTER, records=((AFTER.records or ())[0]._replace(allocated_len=24),))

SPLIT_PROBES = {"node_split_under_lock", "node_split_while_it_is_copied"}


def copying(*events):
    """A transition during a backup and a load; r2 waits for the load."""
    return Transition(COPYING, events, COPYING)


def seen(*changes):
    """The probes that a run reaches with these transitions."""
    watch = ProbeWatch()
    for change in changes:
        watch.look(change)
    return watch.seen


@pytest.mark.parametrize(
    ("changes", "probes"),
    [
        pytest.param([idle()], set(), id="nothing"),
        ([idle(Parked(1, 8))], {"chunk_parked"}),
        pytest.param([idle(ADMITTED)], set(), id="admitted without having been parked"),
        ([idle(Parked(1, 8)), idle(ADMITTED)], {"chunk_parked", "parked_chunk_progressed"}),
        ([idle(Retracted(1, 2, ()))], {"retracted"}),
        ([idle(Retracted(2, 2, ()), before=CHUNKED)], {"retracted", "retracted_with_an_unfinished_chunk"}),
        ([idle(Recovered(1, "swa", False))], {"tombstone_recovered"}),
        ([idle(Recovered(1, "swa", True))], {"tombstone_recovered_over_a_locked_node"}),
        ([idle(WITH_A_TOMBSTONE)], {"match_cut_short_by_a_tombstone"}),
        pytest.param([idle(WITH_A_TOMBSTONE._replace(length=8))], set(), id="whole match"),
        pytest.param([idle(Evicted((), (), ()))], set(), id="evicted"),
        ([idle(Evicted((), (), ()), before=CHUNKED)], {"evicted_inside_a_running_prefill"}),
        ([idle(Split(2, 9, 4))], {"node_split_under_lock"}),
        pytest.param([idle(Split(3, 9, 4))], set(), id="split without one"),
        ([idle(Slid(1, 0, 4))], {"slid_with_window_above_page"}),
        ([idle(Slid(1, 0, 8), before=WIDE_PAGE)], {"slid_with_page_at_least_window"}),
        ([idle(Finished(2, "abort"))], {"abort_while_waiting"}),
        ([copying(Finished(2, "abort"))], {"abort_while_loading"}),
        (
            [idle(Retracted(1, 2, ())), copying(LoadPlanned(1, 8, 9, (("full", 2),), ()))],
            {"retracted", "put_back_and_loaded_again"},
        ),
        ([copying(CopyDropped(9, ("full",)))], {"copy_dropped_while_something_loads"}),
        ([copying(LoadPlanned(1, 8, LOAD, (("full", 0),), ()))], {"load_under_way_joined"}),
        ([copying(CopyEnded(LOAD, "torn"))], {"load_failed"}),
        ([copying(CopyEnded(BACKUP, "torn"))], {"backup_failed"}),
        pytest.param([copying(CopyEnded(BACKUP, None))], set(), id="backup ended well"),
        pytest.param([copying(Split(2, 19, 4))], SPLIT_PROBES, id="split while it is copied"),
        ([idle(CopyBegan(3, False, (("swa", (7,), (1,)),)))], {"window_alone_loaded"}),
        pytest.param([idle(CopyBegan(3, False, (("full", (9,), (1,)),)))], set(), id="a whole prefix"),
        ([idle(Finished(1, "timeout"))], {"timeout_while_running"}),
        pytest.param([idle(Finished(1, "stop"))], set(), id="finished"),
        ([idle(Finished(1, "out of memory", "no page"))], {"ended_out_of_memory"}),
        ([idle(Rejected(3, 99, 1, "too long"))], {"rejected_at_arrival"}),
        ([idle(Freed("full", (9,), R1, "slid", 0)), idle(), idle(Taken("full", (9,), R1))], {"unit_taken_again_soon"}),
        pytest.param(
            [idle(Freed("full", (9,), R1, "slid", 0)), idle(), idle(), idle(Taken("full", (9,), R1))],
            set(),
            id="taken again three steps later",
        ),
    ],
)
def test_probe_is_reached_by_its_state(changes, probes):
    """Exactly these probes are reached."""
    assert seen(*changes) == probes


@pytest.mark.parametrize(
    ("changes", "probes"),
    [
        ([idle(Preempted(1, 2, 2))], {"preempted"}),
        pytest.param([idle(Launched(7, ((1, 20, 21),)))], set(), id="a decode"),
        pytest.param([FIRST_PASS], set(), id="a prefill"),
        ([idle(PREFILL, Launched(7, ((2, 0, 4), (1, 20, 21))))], {"mixed_batch"}),
        ([FIRST_PASS, idle(NEXT_CHUNK, Launched(8, ((2, 4, 5),)))], {"overlapped_chunks"}),
        pytest.param(
            [FIRST_PASS, idle(Completed(7), NEXT_CHUNK, Launched(8, ((2, 4, 5),)))], set(), id="one after the other"
        ),
        ([FIRST_PASS, idle(PREFILL, Launched(8, ((2, 0, 4),)))], {"computed_anew_beside_its_stale_pass"}),
        ([FIRST_PASS, idle(RanOut(2, "full", 1, 0))], {"ran_out_with_a_pass_in_flight"}),
        pytest.param([FIRST_PASS, idle(RanOut(1, "full", 1, 0))], set(), id="another ran out"),
        ([FIRST_PASS, idle(Finished(2, "abort"))], {"abort_while_waiting", "aborted_with_a_pass_in_flight"}),
        ([FIRST_PASS, idle(Completed(7), Finished(2, "abort"))], {"abort_while_waiting"}),
        ([FIRST_PASS, idle(Finished(2, "stop")), idle(Discarded(7, 2))], {"scheduled_once_more_after_the_end"}),
        ([FIRST_PASS, idle(Finished(2, "timeout")), idle(Discarded(7, 2))], {"timeout_while_waiting"}),
        ([idle(Launched(7, ((1, 20, 21),)), before=WITH_LOOKAHEAD_PAGE)], {"lookahead_reached_a_further_page"}),
        pytest.param(
            [idle(Launched(7, ((1, 20, 21),)), before=WITH_LOOKAHEAD_ON_ITS_PAGE)],
            set(),
            id="lookahead on the same page",
        ),
        pytest.param([idle(Paused())], set(), id="paused"),
        ([FIRST_PASS, idle(Paused())], {"paused_with_a_pass_in_flight"}),
        ([idle(Parked(1, 8)), idle(Paused(), before=CHUNKED)], {"chunk_parked", "paused_with_a_parked_chunk"}),
        pytest.param([idle(Paused(), before=CHUNKED)], set(), id="paused with a chunk that was not parked"),
        ([idle(Late(7))], {"a_pass_was_late"}),
        ([FIRST_PASS, idle(Failed(7, "gone"))], {"a_pass_failed"}),
        (
            [FIRST_PASS, idle(Launched(8, ((1, 20, 21),)), Failed(7, "gone"))],
            {"a_pass_failed", "a_pass_failed_with_another_behind_it"},
        ),
        ([idle(Finished(1, "forward failed", "3 times: x"))], {"request_ended_by_failures"}),
        ([idle(Refused("swa", R1, 1, 5))], {"second_pool_refused"}),
        pytest.param([idle(Refused("full", R1, 1, 5))], set(), id="first pool"),
        pytest.param([idle(Refused("swa", R1, 1, 0))], set(), id="second pool for want of pages"),
    ],
)
def test_probe_of_passes_and_faults_is_reached_by_its_state(changes, probes):
    """Exactly these probes are reached."""
    assert seen(*changes) == probes


def test_faults_are_counted_by_name():
    watch = ProbeWatch()

    watch.look(idle(Fired("pool.refuses"), Fired("client.gone"), Fired("pool.refuses")))

    assert dict(watch.fired) == {"pool.refuses": 2, "client.gone": 1}


def test_each_probe_has_its_own_description():
    assert len(set(ENGINE_PROBES.values())) == len(ENGINE_PROBES)
