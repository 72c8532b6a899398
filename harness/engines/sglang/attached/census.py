"""The deepest level: after each turn, the whole state is captured and all laws are checked."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.engines.foreign.attached import levels
from swarden.harness.engines.foreign.attached.follow import UnknownScheduler
from swarden.harness.engines.sglang.adapter import REPORTED
from swarden.harness.engines.sglang.attached.live import sessions_of
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capture import Enabled, SglangCapture
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.forward import SglangPass, entries_of
from swarden.harness.engines.sglang.moves import with_owners
from swarden.harness.engines.sglang.requests import SglangRequest, SglangRequests, is_rejected
from swarden.harness.engines.sglang.scheduler import BuiltScheduler
from swarden.invariants.view import Snapshot

OF_THE_PORT = frozenset(
    kind.__name__
    for kind in (
        seen.Fired,
        seen.GivenUp,
        seen.Kept,
        seen.Lent,
        seen.Read,
        seen.Rejected,
        seen.TurnRefused,
        seen.Written,
    )
)
UNREPORTED = seen.ALL_EVENTS - REPORTED | OF_THE_PORT


class Census(levels.Census):
    """Captures the tree and the pools; follows the passes in flight, and the turns of sessions."""

    def __init__(
        self, release: SglangRelease, config: SglangConfig, built: BuiltScheduler, requests: SglangRequests
    ) -> None:
        self._built, self._requests = built, requests
        self._sessions = sessions_of(built.scheduler, built.memory.tree)
        self._in_flight: list[SglangPass] = []
        self._num_launches = 0
        self._capture = SglangCapture(release, config, built, UNREPORTED, Enabled(sessions=self._sessions))
        try:
            super().__init__()
        except NotImplementedError as error:
            remedy = "set SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=python, or choose level audit"
            raise UnknownScheduler(f"its tree shows no nodes; {remedy}") from error

    def added(self, request: SglangRequest) -> None:
        session = getattr(request.req, "session", None)
        if self._sessions is not None and session is not None and session.streaming:
            request.session = self._sessions.number_of(session.session_id)
            request.is_refused = is_rejected(request.req)

    def launched(self, launched: Any) -> Sequence[NamedTuple]:
        self._num_launches += 1
        one = SglangPass(self._num_launches, entries_of(launched, self._built.memory), [])
        self._in_flight.append(one)
        return [seen.Launched(one.launch, tuple([entry.ids for entry in one.entries]))]

    def completed(self) -> Sequence[NamedTuple]:
        if not self._in_flight:
            return ()
        done, live = self._in_flight.pop(0), self._requests.unfinished
        stale = [entry.request.id for entry in done.entries if not entry.is_held_by(live)]
        return [seen.Completed(done.launch), *[seen.Discarded(done.launch, request) for request in stale]]

    @property
    def _has_requests(self) -> bool:
        return bool(self._requests)

    @property
    def _is_paused(self) -> bool:
        return bool(self._built.scheduler._engine_paused)

    def _with_owners(self, events: Sequence[NamedTuple], after: Snapshot) -> Sequence[NamedTuple]:
        return [event for _, event in with_owners(events, self._transitions.last, after)]

    def _take_snapshot(self) -> Snapshot:
        return self._capture.capture(self._num_turns, self._requests.unfinished, self._in_flight)
