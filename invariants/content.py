"""What is in the slots that are read, and what comes out."""

from invariants.events import Compared, Launched, Read, TakenOver
from invariants.invariant import invariant
from invariants.reference import Reference
from invariants.transition import Transition, When
from invariants.view import LaunchView, Snapshot
from invariants.violation import Evidence
from invariants.windows import lookback
from invariants.wording import request_name, unit_of


def tokens_are_known(change: Transition) -> bool:
    return bool(change.reference.expectations)


def outputs_can_be_foretold(change: Transition) -> bool:
    return change.reference.vocabulary > 0


def slots_can_be_read(change: Transition) -> bool:
    return Read in change.by_type


def tagged_tokens_are_known(change: Transition) -> bool:
    return slots_can_be_read(change) and tokens_are_known(change)


def logits_are_compared(change: Transition) -> bool:
    return Compared in change.by_type


# Of a pass one hears what its slots hold or how far off its logits are, as the model behind it is.
@invariant(When.OP, on=(Read, Compared), given=tagged_tokens_are_known)
def every_slot_read_holds_its_prefix(change: Transition) -> Evidence:
    """Every slot that a pass reads holds the KV of exactly its request's tokens up to there, and of its drafts.

    A result that is discarded may rest on what a pass that failed before it never wrote.
    """
    expectations = change.reference.expectations
    for event in change.events_of(Read):
        expected = (
            expectations.get(event.request_id) if (event.launch, event.request_id) not in change.discarded else None
        )
        if expected is None:
            continue
        drafts = change.drafts.get((event.launch, event.request_id), ())
        wanted = expected.tags_of(event.start, event.start + len(event.tags), drafts)
        if event.tags != wanted:
            offset = next(
                (offset for offset, (tag, want) in enumerate(zip(event.tags, wanted, strict=False)) if tag != want),
                len(wanted),
            )
            place = _place(change.after, event, event.start + offset)
            yield request_name(event.request_id), f"{place} holds {_content(change.reference, event.tags[offset])}"


@invariant(When.OP, on=(Read, Compared), given=slots_can_be_read)
def reads_cover_the_window(change: Transition) -> Evidence:
    """A pass reads all that its entries see: the whole prefix, or in a window the last tokens of it.

    It need not read for a result that is discarded.
    """
    reads = {(read.launch, read.request_id, read.pool): read for read in change.events_of(Read)}
    read_in = {launch for launch, _, _ in reads}
    launched: list[LaunchView | Launched] = [*(change.before.launches or ()), *change.events_of(Launched)]
    for one in launched:
        for request, start, end in one.entries if one.launch in read_in else ():
            for pool, window, _ in change.after.components if (one.launch, request) not in change.discarded else ():
                read = reads.get((one.launch, request, pool))
                first = 0 if window is None else max(0, start - lookback(window))
                if read is None or read.start > first or read.start + len(read.tags) < end:
                    seen = f"[{read.start}, {read.start + len(read.tags)})" if read is not None else "nothing"
                    yield request_name(request), f"read {seen} of {pool}, want [{first}, {end})"


@invariant(When.STEP, needs=("requests",), given=outputs_can_be_foretold)
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


@invariant(When.OP, on=(Read, Compared), given=logits_are_compared)
def logits_are_those_without_a_cache(change: Transition) -> Evidence:
    """The logits of every position, where a pass is asked for them, are those of a model that keeps nothing.

    A result that is discarded may rest on what a pass that failed before it never wrote.
    """
    for event in change.events_of(Compared):
        is_close = event.difference is None or event.difference <= event.tolerance  # which NaN is not
        if not is_close and (event.launch, event.request_id) not in change.discarded:
            computed = f"computed [{event.start}, {event.end})"
            off = f"the logits at position {event.position} are off by {event.difference:.3g}"
            yield request_name(event.request_id), f"{computed}: {off}, want at most {event.tolerance:g}"


@invariant(When.OP, on=(Read, Compared), given=logits_are_compared)
def outputs_are_those_without_a_cache(change: Transition) -> Evidence:
    """What is sampled, and what the client gets of it, is the likeliest token to a model that keeps nothing."""
    for event in change.events_of(Compared):
        if event.likeliest is not None and (event.launch, event.request_id) not in change.discarded:
            streamed = change.reference.tokens_of(event.request_id)[event.end : event.end + 1]
            for token in dict.fromkeys((event.token, *streamed)):
                if token != event.likeliest:
                    said = f"token {token} at position {event.end}"
                    yield request_name(event.request_id), f"{said}, the likeliest is {event.likeliest}"


@invariant(When.STEP, needs=("requests", "launches"), given=tokens_are_known)
def clients_get_what_passes_computed(change: Transition) -> Evidence:
    """A client gets a token for each result that counts, none for what was discarded, and no more than it asked for.

    What another engine has computed counts when it is taken over.
    """
    sampled: dict[int, int] = {}
    for landing in change.landings:
        count = 1 + landing.accepted if landing.counts else 0
        sampled[landing.request_id] = sampled.get(landing.request_id, 0) + count
    for event in change.events_of(TakenOver):
        sampled[event.request_id] = sampled.get(event.request_id, 0) + len(event.tokens)
    for request in change.before.requests or ():
        expected = change.reference.expectations.get(request.id)
        if expected is not None:
            num_outputs = len(expected.tokens) - expected.prompt_len
            num_new, most = num_outputs - request.num_outputs, sampled.get(request.id, 0)
            if num_new > most:
                yield request_name(request.id), f"got {num_new} tokens, {most} results of the step count"
            if num_outputs > max(request.max_new_tokens, 0):
                yield request_name(request.id), f"got {num_outputs} tokens, it asked for {request.max_new_tokens}"


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
