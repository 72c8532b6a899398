"""Grammars of answers: each follows the tokens of its own answer, and no other ones.

On a server: A client with structured output gets tokens that its grammar does not allow, or an error instead of the
rest of its answer.
"""

from swarden.invariants.events import GrammarRefused
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class GrammarCode(Code):
    REFUSED = "its grammar gets token {token}, but does not allow it after {num_accepted} tokens"
    BEHIND = "its grammar has accepted {num_accepted} tokens, its client has {num_outputs}"


def grammars_are_shown(change: Transition) -> bool:
    """Has a request a grammar, of which the engine shows what it has accepted?"""
    return any(request.num_accepted is not None for request in change.after.requests or ())


def grammars_are_used(change: Transition) -> bool:
    """Has a request a grammar, of which the engine shows what it has accepted, or did one refuse a token?"""
    return grammars_are_shown(change) or bool(change.events_of(GrammarRefused))


@invariant(When.OP, needs=("GrammarRefused",), given=grammars_are_used)
def grammars_get_only_what_they_allow(change: Transition) -> Evidence:
    """A grammar gets only tokens that it allows; drafts that it does not allow are sorted out before."""
    for event in change.events_of(GrammarRefused):
        values = {"token": event.token, "num_accepted": event.num_accepted}
        yield found(request_ref(event.request_id), GrammarCode.REFUSED, **values)


@invariant(When.STEP, needs=("requests",), given=grammars_are_shown)
def grammars_follow_their_answers(change: Transition) -> Evidence:
    """After a step the grammar of a request has accepted exactly the tokens that the client got."""
    for request in change.after.requests or ():
        expected = change.reference.expectations.get(request.id)
        if request.num_accepted is not None and expected is not None and not expected.is_aborted:
            num_outputs = len(expected.tokens) - expected.prompt_len
            if request.num_accepted != num_outputs:
                values = {"num_accepted": request.num_accepted, "num_outputs": num_outputs}
                yield found(request_ref(request.id), GrammarCode.BEHIND, **values)
