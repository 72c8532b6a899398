"""Grammars of answers: each follows the tokens of its own answer, and no other ones.

On a server: A client with structured output gets tokens that its grammar does not allow, or an error instead of the
rest of its answer.
"""

from swarden.invariants.events import GrammarMisused, GrammarUse
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class GrammarCode(Code):
    REFUSED = "its grammar gets token {value}, but does not allow it after {num_accepted} tokens"
    BEYOND_START = "its grammar is rolled back by {value} tokens, but has accepted {num_accepted}"
    ENDED = "its grammar, which has accepted {num_accepted} tokens, gets {value} more, but the request has ended"
    BEHIND = "its grammar has accepted {num_accepted} tokens, its client has {num_outputs}"


CODES = {
    GrammarUse.REFUSED: GrammarCode.REFUSED,
    GrammarUse.BEYOND_START: GrammarCode.BEYOND_START,
    GrammarUse.ENDED: GrammarCode.ENDED,
}


def grammars_are_shown(change: Transition) -> bool:
    """Has a request a grammar, of which the engine shows what it has accepted?"""
    return any(request.num_accepted is not None for request in change.after.requests or ())


@invariant(When.OP, on=(GrammarMisused,))
def grammars_get_only_their_answers(change: Transition) -> Evidence:
    """A grammar gets only tokens that it allows, goes back by at most what it has accepted, and ends with its request.

    Drafts that it refuses are sorted out before it gets them.
    """
    for event in change.events_of(GrammarMisused):
        values = {"value": event.value, "num_accepted": event.num_accepted}
        yield found(request_ref(event.request_id), CODES[event.use], **values)


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
