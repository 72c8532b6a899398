"""Probes of recurrent states: each is reached by its rare state and by no similar state."""

from dataclasses import replace

import pytest

from swarden.harness.engines.own.probes import state_probes_of
from swarden.invariants.events import CopyBegan, Matched, Removed, Tombstoned, Verified
from swarden.invariants.transition import Transition
from swarden.invariants.view import Snapshot
from tests.invariants.builders import PROMPT
from tests.invariants.host_builders import BACKUP_BEGAN, COPYING, LOAD_BEGAN

STATE_LOADED = LOAD_BEGAN._replace(pages=LOAD_BEGAN.pages[1:])
OF_N1 = Matched(3, 0, PROMPT[:17], 8, (1, 2))
EVICTED = Tombstoned(3, "swa", in_tail=True)


def copying(*events, has_states: bool = True) -> Transition:
    """A transition during a backup and a load, in an engine whose second pool has states."""
    full, swa = COPYING.components
    before: Snapshot = replace(COPYING, components=(full, swa._replace(window=2, has_states=has_states)))
    return Transition(before, events, before)


@pytest.mark.parametrize(
    ("events", "probes"),
    [
        pytest.param((), set(), id="nothing"),
        ((STATE_LOADED,), {"state_alone_loaded"}),
        pytest.param((LOAD_BEGAN,), set(), id="a whole node is loaded"),
        pytest.param((CopyBegan(3, to_host=True, pages=STATE_LOADED.pages),), set(), id="a state is backed up"),
        pytest.param((BACKUP_BEGAN,), set(), id="a whole node is backed up"),
        ((EVICTED,), {"state_tombstone_on_a_live_node"}),
        pytest.param((Tombstoned(3, "full", in_tail=True),), set(), id="other pages are evicted"),
        pytest.param((OF_N1,), set(), id="a request starts"),
        ((OF_N1, EVICTED), {"state_tombstone_on_a_live_node", "evicted_as_a_request_starts_from_a_state"}),
        ((OF_N1, Removed(3, "full", in_tail=True)), {"evicted_as_a_request_starts_from_a_state"}),
        pytest.param(
            (OF_N1, Removed(4, "full", in_tail=True)), set(), id="a node without states is removed for a start"
        ),
        pytest.param((Removed(3, "full", in_tail=True),), set(), id="a node is removed"),
        ((Verified(7, 1, 1, (5, 6, 7)),), {"drafts_accepted_in_part"}),
        pytest.param((Verified(7, 1, 2, (5, 6, 7)),), set(), id="all drafts are accepted"),
        pytest.param((Verified(7, 1, 0, (5, 6, 7)),), set(), id="no draft is accepted"),
    ],
)
def test_probe_is_reached_by_its_state(events, probes):
    assert set(state_probes_of(copying(*events))) == probes


def test_engine_without_states_reaches_no_probe():
    assert not set(state_probes_of(copying(OF_N1, EVICTED, STATE_LOADED, has_states=False)))
