"""Rare states of two engines that serve as one; see probes.py."""

from collections.abc import Iterator

from invariants import events as seen
from invariants.limits import BOTH, DECODE, PREFILL
from invariants.transition import Transition
from invariants.view import HANDOVER_KIND

PAIR_PROBES = {
    "aborted_before_there_was_room": "a client gave up on a request that the decode side had no room for yet",
    "aborted_before_an_invitation": "a client gave up on a request that the prefill side was not to compute yet",
    "aborted_in_a_transfer": "a client gave up on a request while its prompt was computed, or on its way",
    "held_in_vain": "what was held for the decode side was let go of, and not because it had come",
    "failed_when_part_had_come": "a request ended when some of its pages had come, and others not",
    "set_aside_during_a_transfer": "a decode gave its pages back while others were reserved for who was to come",
    "came_back_from_aside": "a decode went on with what it had set aside",
    "sent_again": "pages were sent once more",
    "not_heard_of": "a request ended because the other side was silent",
    "went_on_from_a_shared_prefix": "the decode side had the beginning of a prompt already",
    "longer_than_the_windowed_pool": "a prompt went over that is longer than all windowed pages of the decode side",
    "ended_with_its_prompt": "a request was taken over that had all its tokens already",
}
SILENT = "has not been heard of"


class PairWatch:
    """What one run has seen of either side, and the little to remember for it."""

    def __init__(self) -> None:
        self._sent: set[tuple[int, str, int]] = set()
        self._came: set[int] = set()  # requests of which pages have come
        self._aside: set[int] = set()

    def look(self, change: Transition) -> Iterator[str]:
        """The probes that a transition shows."""
        if change.after.limits.role == BOTH:
            return
        for event in change.events:
            match event:
                case seen.Finished():
                    yield from self._on_finished(change, event)
                case seen.LetGo() if change.after.limits.role == PREFILL and event.cause != "handed over":
                    yield "held_in_vain"
                case seen.Sent():
                    if (event.request_id, event.pool, event.first) in self._sent:
                        yield "sent_again"
                    self._sent.add((event.request_id, event.pool, event.first))
                case seen.Filled():
                    self._came.add(event.request_id)
                case seen.Reserved():
                    yield from self._on_reserved(change, event)
                case seen.SetAside():
                    self._aside.add(event.request_id)
                    if any(record.owner.kind == HANDOVER_KIND for record in change.after.records or ()):
                        yield "set_aside_during_a_transfer"
                case seen.TakenOver():
                    self._came.discard(event.request_id)
                    if event.request_id in self._aside:
                        yield "came_back_from_aside"
                    request = change.before.request_by_id.get(event.request_id)
                    if request is not None and request.num_outputs + len(event.tokens) >= request.max_new_tokens:
                        yield "ended_with_its_prompt"
                case _:
                    pass

    def _on_finished(self, change: Transition, event: seen.Finished) -> Iterator[str]:
        request = change.before.request_by_id.get(event.request_id)
        if request is None:
            return
        has_room = any(
            record.owner.kind == HANDOVER_KIND and record.owner.id == event.request_id
            for record in change.before.records or ()
        )
        if SILENT in event.reason:
            yield "not_heard_of"
        if event.reason == "abort" and has_room:
            yield "aborted_in_a_transfer"
        elif event.reason == "abort" and request.place == "linked":
            is_decode = change.after.limits.role == DECODE
            yield "aborted_before_there_was_room" if is_decode else "aborted_before_an_invitation"
        if has_room and event.request_id in self._came and event.reason not in ("stop", "length"):
            yield "failed_when_part_had_come"

    def _on_reserved(self, change: Transition, event: seen.Reserved) -> Iterator[str]:
        if event.prefix_len:
            yield "went_on_from_a_shared_prefix"
        page_size = change.after.limits.page_size
        windowed = [pool for pool, window, _ in change.after.components if window is not None]
        if any(event.length > change.after.pool(pool).capacity * page_size for pool in windowed):
            yield "longer_than_the_windowed_pool"
