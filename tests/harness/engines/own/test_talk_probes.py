"""Probes of sessions and of speculation: each is reached by its rare state and by no similar state."""

from dataclasses import replace

import pytest

from swarden.harness.engines.own.talk_probes import SessionWatch
from swarden.invariants.events import Finished, GivenUp, Kept, Retracted, Slid, Verified
from swarden.invariants.reference import Reference
from swarden.invariants.transition import Transition
from swarden.invariants.view import SessionView
from tests.invariants.builders import AFTER, BEFORE, HEALTHY, idle, reference
from tests.invariants.cases.sessions import IDLE, KEPT, RUNNING, WAITING, with_sessions

PROMPT = tuple(range(10, 18))
TURN = SessionView(4, 0, 2, 8, False)


def seen(*changes: Transition) -> set[str]:
    watch = SessionWatch()
    return {probe for change in changes for probe in watch.look(change)}


def landing(*events, outputs: int, most: int) -> Transition:
    """r1 finishes with 22 tokens; `outputs` of them are new, and its limit is `most`."""
    request = (BEFORE.requests or ())[0]._replace(num_outputs=4 - outputs, max_new_tokens=most)
    before = replace(BEFORE, requests=(request,))
    return replace(HEALTHY, before=before, events=events, after=replace(AFTER, requests=()), reference=reference(22))


def rewinding(*, to: int, frontier: int, cause: str = "diverged") -> tuple[Transition, Transition]:
    """Session 4 keeps the eight tokens of r1. The next turn r2 has the first `to` of them in its prompt."""
    known = Reference()
    known.submitted(1, namespace=0, prompt=PROMPT)
    known.submitted(2, namespace=0, prompt=(*PROMPT[:to], 90, 91))
    kept = replace(idle(Kept(4, 1, 8)), reference=known)
    idle_session = replace(AFTER, records=(KEPT._replace(frontiers=(0, frontier)),), sessions=(TURN,))
    return kept, replace(kept, before=idle_session, events=[GivenUp(4, cause)])


@pytest.mark.parametrize(
    ("changes", "probes"),
    [
        pytest.param([with_sessions()], set(), id="nothing"),
        ([with_sessions(sessions=(SessionView(3, 0, 1, 0, True), IDLE))], {"closed_during_a_turn"}),
        ([with_sessions(Retracted(1, 3, ()))], {"turn_retracted"}),
        pytest.param([with_sessions(Retracted(2, 3, ()))], set(), id="another request is retracted"),
        ([with_sessions(Finished(1, "abort"))], {"first_turn_aborted"}),
        pytest.param([with_sessions(Finished(1, "stop"))], set(), id="the first turn has ended"),
        pytest.param([with_sessions(Kept(3, 9, 4)), with_sessions(Finished(1, "abort"))], set(), id="the second turn"),
        pytest.param([with_sessions(Finished(2, "abort"))], set(), id="of no session"),
        ([landing(Verified(7, 1, 0, (5, 6)), outputs=1, most=9)], {"drafts_rejected"}),
        pytest.param([landing(Verified(7, 1, 1, (5, 6)), outputs=2, most=4)], set(), id="just enough"),
        ([landing(Verified(7, 1, 1, (5, 6)), outputs=1, most=4)], {"overshot_the_length"}),
        ([landing(Verified(7, 1, 1, (5, 6)), outputs=1, most=9)], {"overshot_a_stop"}),
        (
            [landing(Slid(1, 4, 8), Verified(7, 1, 1, (5, 6)), outputs=1, most=9)],
            {"overshot_a_stop", "overshot_while_the_window_slid"},
        ),
        (rewinding(to=4, frontier=8), {"rewound_below_the_frontier"}),
        (rewinding(to=3, frontier=4), {"rewound_below_the_frontier", "rewound_into_an_evicted_page"}),
        pytest.param(rewinding(to=4, frontier=4), set(), id="to the frontier"),
        pytest.param(rewinding(to=3, frontier=4, cause="closed"), set(), id="closed"),
    ],
)
def test_probe_is_reached_by_its_state(changes, probes):
    assert (RUNNING.session, WAITING.session) == (3, 0)
    assert seen(*changes) == probes
