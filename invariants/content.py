"""What is in the slots that are read, where the forward writes, and what comes out."""

from invariants.base import Evidence, Transition, When, invariant
from invariants.events import Launched, Read, Written
from invariants.reference import Reference
from invariants.view import Snapshot
from invariants.windows import lookback
from invariants.wording import request_name, standing, unit_of


def tokens_are_known(change: Transition) -> bool:
    return bool(change.reference.expectations)


def outputs_can_be_foretold(change: Transition) -> bool:
    return change.reference.vocabulary > 0


@invariant(When.OP, covers=("CONTENT", "SESSION-PREFIX"), on=(Read,), given=tokens_are_known)
def every_slot_read_holds_its_prefix(change: Transition) -> Evidence:
    """Every slot that a pass reads holds the KV of exactly its request's tokens up to there."""
    expectations = change.reference.expectations
    for event in change.events_of(Read):
        expected = expectations.get(event.request_id)
        if expected is not None and event.tags != expected.tags[event.start : event.start + len(event.tags)]:
            wrong = expected.tags[event.start : event.start + len(event.tags)]
            offset = next(
                (offset for offset, (tag, want) in enumerate(zip(event.tags, wrong, strict=False)) if tag != want),
                len(wrong),
            )
            place = _place(change.after, event, event.start + offset)
            yield request_name(event.request_id), f"{place} holds {_content(change.reference, event.tags[offset])}"


@invariant(When.OP, covers=("CONTENT",), on=(Read,))
def reads_cover_the_window(change: Transition) -> Evidence:
    """A pass reads all that its entries see: the whole prefix, or in a window the last tokens of it."""
    reads = {(read.launch, read.request_id, read.pool): read for read in change.events_of(Read)}
    launches = {launch for launch, _, _ in reads}
    for event in change.events_of(Launched):
        for request, start, end in event.entries if event.launch in launches else ():
            for pool, window in change.after.components:
                read = reads.get((event.launch, request, pool))
                first = 0 if window is None else max(0, start - lookback(window))
                if read is None or read.start > first or read.start + len(read.tags) < end:
                    seen = f"[{read.start}, {read.start + len(read.tags)})" if read is not None else "nothing"
                    yield request_name(request), f"read {seen} of {pool}, want [{first}, {end})"


@invariant(When.OP, covers=("WRITE-PRIVATE", "NO-UAF"), on=(Written,))
def writes_go_to_private_units(change: Transition) -> Evidence:
    """A pass writes only to what its request owns just then: not to the tree's, nor to what is free."""
    for event, unit, owner in change.misplaced:
        if isinstance(event, Written):
            pool = change.before.pool(event.pool)
            wrote = f"written by {request_name(event.request_id)} for [{event.start}, {event.end})"
            yield unit_of(pool, unit), f"{wrote}, yet {standing(owner) if unit else 'it is padding'}"


@invariant(When.STEP, covers=("OUTPUT-EQ", "CONTENT"), needs=("requests",), given=outputs_can_be_foretold)
def outputs_equal_the_reference(change: Transition) -> Evidence:
    """What a client gets is what a model without any cache would have said."""
    reference, windows = change.reference, change.reference.windows
    for request in change.before.requests or ():
        expected = reference.expectations.get(request.id)
        if expected is not None:
            first = expected.prompt_len + request.num_outputs
            for position in range(first, len(expected.tokens)):
                want = expected.next_token(position, windows=windows, vocabulary=reference.vocabulary)
                if expected.tokens[position] != want:
                    said = f"token {expected.tokens[position]} at position {position}"
                    yield request_name(request.id), f"{said}, the reference says {want}"
                    break


def _place(snapshot: Snapshot, read: Read, position: int) -> str:
    """The position, and its page where the request still has one for it."""
    record = snapshot.record_by_request.get(read.request_id)
    index = next((index for index, component in enumerate(snapshot.components) if component.pool == read.pool), None)
    page = position // snapshot.limits.page_size
    if record is None or index is None or page >= len(record.units[index]):
        return f"position {position} in {read.pool}"
    return f"position {position} in {unit_of(snapshot.pool(read.pool), record.units[index][page])}"


def _content(reference: Reference, tag: int) -> str:
    """Whose KV a tag is, as far as anybody knows."""
    if not tag:
        return "nothing"
    for request_id, expected in reference.expectations.items():
        if tag in expected.tags:
            return f"what {request_name(request_id)} has at position {expected.tags.index(tag)}"
    return "what nobody's tokens give"
