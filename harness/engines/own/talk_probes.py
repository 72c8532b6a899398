"""Rare states of sessions and of speculation; see probes.py."""

from collections.abc import Iterator

from swarden.engine_under_test.units import common_len
from swarden.invariants import events as seen
from swarden.invariants.events import SESSION_KIND, FinishReason, FreeCause
from swarden.invariants.transition import Transition

TALK_PROBES = {
    "first_turn_aborted": "a client aborted a turn of a session that had not kept the KV of any turn yet",
    "closed_during_a_turn": "a session was closed while a turn of it was waiting or running",
    "turn_retracted": "a turn of a session was retracted because free pages ran out",
    "rewound_below_the_frontier": "a turn rewound below the frontier, so windowed pages that it would read are free",
    "rewound_into_an_evicted_page": "a turn rewound into the middle of a page whose windowed part is free",
    "drafts_rejected": "the model rejected a draft token",
    "overshot_the_length": "more draft tokens were accepted than the output length allows",
    "overshot_a_stop": "draft tokens were accepted after a stop token",
    "overshot_while_the_window_slid": "accepted tokens were dropped in a step in which the window of the request slid",
}


class SessionWatch:
    """Detects the session and speculation probes of one run."""

    def __init__(self) -> None:
        self._last_turns: dict[int, int] = {}  # by session, the last turn whose KV was kept

    def look(self, change: Transition) -> Iterator[str]:
        """The probes that a transition reaches."""
        if any(session.is_closing and session.turn for session in change.after.sessions or ()):
            yield "closed_during_a_turn"
        for retracted in change.events_of(seen.Retracted):
            if self._session_of(change, retracted.request_id):
                yield "turn_retracted"
        for given_up in change.events_of(seen.GivenUp):
            yield from self._given_up(change, given_up)
        for verified in change.events_of(seen.Verified):
            yield from self._verified(change, verified)
        for finished in change.events_of(seen.Finished):
            session = self._session_of(change, finished.request_id)
            if session and finished.reason == FinishReason.ABORT and session not in self._last_turns:
                yield "first_turn_aborted"
        for kept in change.events_of(seen.Kept):
            self._last_turns[kept.session] = kept.request_id

    def _session_of(self, change: Transition, request_id: int) -> int:
        request = change.before.request_by_id.get(request_id) or change.after.request_by_id.get(request_id)
        return request.session if request is not None else 0

    def _given_up(self, change: Transition, event: seen.GivenUp) -> Iterator[str]:
        kept = [record for record in change.before.records or () if record.owner == (SESSION_KIND, event.session)]
        session = change.before.session_by_id.get(event.session)
        last_turn = self._last_turns.get(event.session)  # unknown if the events of its step were not checked
        if session is not None and last_turn is not None and kept and event.cause == FreeCause.DIVERGED:
            last_tokens = change.reference.tokens_of(last_turn)[: kept[0].committed_len]
            length = common_len(change.reference.tokens_of(session.turn)[:-1], last_tokens)
            if length < max(kept[0].frontiers):
                yield "rewound_below_the_frontier"
                if length % change.after.limits.page_size:
                    yield "rewound_into_an_evicted_page"

    def _verified(self, change: Transition, event: seen.Verified) -> Iterator[str]:
        if event.num_accepted < len(event.tokens) - 1:
            yield "drafts_rejected"
        request = change.before.request_by_id.get(event.request_id)
        if request is not None and event.request_id not in change.after.request_by_id:
            new = len(change.reference.tokens_of(request.id)) - request.prompt_len - request.num_outputs
            if 0 < new <= event.num_accepted:
                yield (
                    "overshot_the_length" if request.num_outputs + new == request.max_new_tokens else "overshot_a_stop"
                )
                if any(slid.request_id == request.id for slid in change.events_of(seen.Slid)):
                    yield "overshot_while_the_window_slid"
