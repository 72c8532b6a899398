"""The options and aborts of clients: stop conditions, aborts, and requests that are not cached.

On a server: An abort, a stop token, a limit or a request not to be cached is not respected: work for nothing, an
answer that is too long or too short, or KV that others can find.
"""

from swarden.invariants.events import REQUEST_KIND, TREE_KIND, Finished, FinishReason, Given, Launched
from swarden.invariants.invariant import invariant
from swarden.invariants.kinds import Place
from swarden.invariants.laws.content.outputs import tokens_are_known
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref, unit_ref


class ClientCode(Code):
    DECODED_AFTER_ABORT = "{decoded} tokens decoded after its abort, at most {most} are allowed"
    COMPUTED_AFTER_ABORT = "launch {launch} computes [{start}, {end}), but it was aborted before its first output"
    DECODED_AFTER_STOP = "not ended at its stop token {token} at position {position}"
    STOPPED_WITHOUT_STOP_TOKEN = "ended by a stop token, but has none in its output"
    CACHED_AGAINST_ITS_WISH = "asked not to be cached, but gives {units} to the prefix cache"
    NOT_ABORTED = "ended as aborted, but its client has not aborted it"
    ENDED_SHORT = "ended by length after {num_outputs} tokens, but {asked} were requested"


@invariant(When.OP, needs=("requests",), given=tokens_are_known)
def aborted_requests_stop_decoding(change: Transition) -> Evidence:
    """An aborted request gets only the tokens of the passes in flight and of one more pass."""
    limits = change.after.limits
    most = (limits.most_launches + 1) * (1 + limits.draft_len)
    for request in change.after.requests or ():
        expected = change.reference.expectations.get(request.id)
        if expected is not None and expected.len_at_abort is not None:
            decoded = request.prompt_len + request.num_outputs - expected.len_at_abort
            if decoded > most:
                yield found(request_ref(request.id), ClientCode.DECODED_AFTER_ABORT, decoded=decoded, most=most)


@invariant(When.OP, on=(Launched,), given=tokens_are_known)
def aborted_prompts_are_not_computed(change: Transition) -> Evidence:
    """No pass is launched for a request whose client aborted it before it got any output.

    The result of its pass in flight ends the request (sglang issue 34149).  An engine that launches the next pass
    before it has that result may decode the request in `decodes_after_abort` passes.  A request with outputs may have
    further passes, which `aborted_requests_stop_decoding` limits.
    """
    most = change.after.limits.decodes_after_abort
    for event in change.events_of(Launched):
        for request, start, end in event.entries:
            expected = change.reference.expectations.get(request)
            if expected is None or expected.len_at_abort != expected.prompt_len:
                continue
            if not expected.prompt_len <= start < expected.prompt_len + most:
                values = {"launch": event.launch, "start": start, "end": end}
                yield found(request_ref(request), ClientCode.COMPUTED_AFTER_ABORT, **values)


def moves_units_of_uncached_requests(change: Transition) -> bool:
    """Did units change hands of a request that asked for no caching (`uncached`)?"""
    return any(_is_uncached(change, event) for event in change.events_of(Given))


def _is_uncached(change: Transition, event: Given) -> bool:
    expected = change.reference.expectations.get(event.from_owner.id)
    return event.from_owner.kind == REQUEST_KIND and expected is not None and expected.is_uncached


@invariant(When.OP, on=(Given,), given=moves_units_of_uncached_requests)
def uncached_requests_insert_nothing(change: Transition) -> Evidence:
    """A request that asks not to be cached gives no unit to the prefix cache."""
    for event in change.events_of(Given):
        if event.to_owner.kind == TREE_KIND and _is_uncached(change, event):
            units = tuple([unit_ref(change.after.pool(event.pool), unit) for unit in event.units])
            yield found(request_ref(event.from_owner.id), ClientCode.CACHED_AGAINST_ITS_WISH, units=units)


@invariant(When.OP, needs=("requests",), given=tokens_are_known)
def outputs_end_as_asked(change: Transition) -> Evidence:
    """An output ends at its first stop token or at max_new_tokens, and the finish reason says which.

    A request ends as aborted only if its client has aborted it, or in a sleep of some engines.  After an abort it may
    have more tokens, which `aborted_requests_stop_decoding` limits, but ends by itself only with a complete output.  A
    request that ends for another reason (a timeout, an error) may have fewer tokens.  If it ends outside of a step, its
    tokens may come later, unless it has waited.
    """
    reasons = {event.request_id: event.reason for event in change.events_of(Finished)}
    news, names_aborts = reasons.keys() | {request.id for request, _ in change.grown}, change.after.limits.names_aborts
    for request in change.before.requests or ():
        is_due = request.id in news and (change.when == When.STEP or request.place == Place.WAITING)
        expected = change.reference.expectations.get(request.id) if is_due else None
        if expected is None:
            continue
        subject, first = request_ref(request.id), expected.prompt_len + request.num_outputs
        new, outputs, reason = expected.tokens[first:], expected.tokens[expected.prompt_len :], reasons.get(request.id)
        stops = [index for index, token in enumerate(new) if token in expected.stop]
        goes_on = stops and (stops[0] + 1 < len(new) or request.id in change.after.request_by_id)
        if goes_on and not expected.is_aborted:
            values = {"token": new[stops[0]], "position": first + stops[0]}
            yield found(subject, ClientCode.DECODED_AFTER_STOP, **values)
        if reason == FinishReason.STOP and expected.stop.isdisjoint(outputs):
            yield found(subject, ClientCode.STOPPED_WITHOUT_STOP_TOKEN)
        if reason == FinishReason.LENGTH and len(outputs) < request.max_new_tokens:
            values = {"num_outputs": len(outputs), "asked": request.max_new_tokens}
            yield found(subject, ClientCode.ENDED_SHORT, **values)
        if reason == FinishReason.ABORT and names_aborts and not change.reference.has_left(request.id):
            yield found(subject, ClientCode.NOT_ABORTED)
