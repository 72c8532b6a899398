"""Rare states of a prefill engine and a decode engine; see probes.py."""

from collections.abc import Iterator

from swarden.invariants import events as seen
from swarden.invariants.events import HANDOVER_KIND, FinishReason
from swarden.invariants.kinds import Place
from swarden.invariants.limits import BOTH, DECODE, PREFILL
from swarden.invariants.transition import Transition

PAIR_PROBES = {
    "aborted_before_a_reservation": "a request was aborted while it waited for pages on the decode side",
    "aborted_before_an_invitation": "a request was aborted while it waited for an invitation on the prefill side",
    "aborted_in_a_transfer": "a request was aborted while a record was held for its transfer",
    "held_record_released_early": "a record held for the decode side was released before the end of the transfer",
    "ended_with_pages_missing": "a request ended after pages had arrived, but before its transfer was complete",
    "swapped_out_during_a_transfer": "a request was swapped out while pages were reserved for another request",
    "swapped_in": "a swapped-out request was restored",
    "pages_retransmitted": "pages were sent a second time",
    "peer_timed_out": "a request ended because the other side timed out",
    "transfer_behind_a_cached_prefix": "the decode side had a prefix of a prompt cached",
    "longer_than_the_windowed_pool": "a prompt was transferred that is longer than a windowed pool of the decode side",
    "complete_at_transfer_end": "a transferred request had all its output tokens already",
}


class PairWatch:
    """Detects the probes of both sides of one run."""

    def __init__(self) -> None:
        self._sent: set[tuple[int, str, int]] = set()
        self._with_pages: set[int] = set()  # requests with a page that has arrived
        self._swapped_out: set[int] = set()

    def look(self, change: Transition) -> Iterator[str]:
        """The probes that a transition reaches."""
        if change.after.limits.role == BOTH:
            return
        for event in change.events:
            match event:
                case seen.Finished():
                    yield from self._on_finished(change, event)
                case seen.LetGo() if change.after.limits.role == PREFILL and event.cause != "handed over":
                    yield "held_record_released_early"
                case seen.Sent():
                    if (event.request_id, event.pool, event.first) in self._sent:
                        yield "pages_retransmitted"
                    self._sent.add((event.request_id, event.pool, event.first))
                case seen.Filled():
                    self._with_pages.add(event.request_id)
                case seen.Reserved():
                    yield from self._on_reserved(change, event)
                case seen.SetAside():
                    self._swapped_out.add(event.request_id)
                    if any(record.owner.kind == HANDOVER_KIND for record in change.after.records or ()):
                        yield "swapped_out_during_a_transfer"
                case seen.TakenOver():
                    self._with_pages.discard(event.request_id)
                    if event.request_id in self._swapped_out:
                        yield "swapped_in"
                    request = change.before.request_by_id.get(event.request_id)
                    if request is not None and request.num_outputs + len(event.tokens) >= request.max_new_tokens:
                        yield "complete_at_transfer_end"
                case _:
                    pass

    def _on_finished(self, change: Transition, event: seen.Finished) -> Iterator[str]:
        request = change.before.request_by_id.get(event.request_id)
        if request is None:
            return
        has_transfer = any(
            record.owner.kind == HANDOVER_KIND and record.owner.id == event.request_id
            for record in change.before.records or ()
        )
        if event.reason == FinishReason.PEER_TIMEOUT:
            yield "peer_timed_out"
        if event.reason == FinishReason.ABORT and has_transfer:
            yield "aborted_in_a_transfer"
        elif event.reason == FinishReason.ABORT and request.place == Place.LINKED:
            is_decode = change.after.limits.role == DECODE
            yield "aborted_before_a_reservation" if is_decode else "aborted_before_an_invitation"
        if (
            has_transfer
            and event.request_id in self._with_pages
            and event.reason not in (FinishReason.STOP, FinishReason.LENGTH)
        ):
            yield "ended_with_pages_missing"

    def _on_reserved(self, change: Transition, event: seen.Reserved) -> Iterator[str]:
        if event.prefix_len:
            yield "transfer_behind_a_cached_prefix"
        page_size = change.after.limits.page_size
        windowed = [component.pool for component in change.after.components if component.window is not None]
        if any(event.length > change.after.pool(pool).capacity * page_size for pool in windowed):
            yield "longer_than_the_windowed_pool"
