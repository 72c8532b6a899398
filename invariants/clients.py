"""What clients asked for, and whether it is heeded."""

from invariants.events import Finished
from invariants.invariant import invariant
from invariants.laws.content.outputs import tokens_are_known
from invariants.transition import Transition, When
from invariants.violation import Evidence
from invariants.wording import request_name


@invariant(When.OP, needs=("requests",), given=tokens_are_known)
def who_hangs_up_is_let_go(change: Transition) -> Evidence:
    """Nothing is kept or computed for a request whose client has hung up."""
    for request in change.after.requests or ():
        expected = change.reference.expectations.get(request.id)
        if expected is not None and expected.is_gone:
            yield request_name(request.id), f"its client has hung up, yet it is {request.place}"


@invariant(When.STEP, needs=("requests",), given=tokens_are_known)
def outputs_end_where_they_were_asked_to(change: Transition) -> Evidence:
    """An output goes on to the first of its stop tokens or to its length, no further, and the reason says which."""
    reasons = {event.request_id: event.reason for event in change.events_of(Finished)}
    for request in change.before.requests or ():
        expected = change.reference.expectations.get(request.id)
        if expected is None:
            continue
        first = expected.prompt_len + request.num_outputs
        new, reason, name = expected.tokens[first:], reasons.get(request.id), request_name(request.id)
        stops = [index for index, token in enumerate(new) if token in expected.stop]
        num_outputs = request.num_outputs + len(new)
        if stops and (stops[0] + 1 < len(new) or request.id in change.after.request_by_id):
            yield name, f"goes on after its stop token {new[stops[0]]} at position {first + stops[0]}"
        if reason == "stop" and not stops:
            yield name, "ended by a stop token, yet none has come"
        if reason == "length" and num_outputs < request.max_new_tokens:
            yield name, f"ended by its length after {num_outputs} tokens, it asked for {request.max_new_tokens}"
