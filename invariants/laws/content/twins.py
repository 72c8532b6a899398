"""Two engines that get the same requests.

On a server: A setting that must not change answers does: with one of the two settings they are wrong.
"""

from swarden.invariants.events import FinishReason
from swarden.invariants.invariant import invariant
from swarden.invariants.reference import Expectation
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class TwinCode(Code):
    OTHER_TOKEN = "token {token} at position {position}, its twin has {other}"
    GOES_ON_AFTER_STOP = "{count} output tokens, its twin has {other}, and the shorter output ends with a stop"


def has_twin(change: Transition) -> bool:
    """Does a twin of the engine run beside it, as with `swarden fuzz --twin`?"""
    return bool(change.reference.twins)


@invariant(When.QUIESCENT, given=has_twin)
def twins_agree(change: Transition) -> Evidence:
    """A request gets the same output from an engine and from its twin.

    The outputs are compared up to the end of the shorter one, and neither goes beyond a stop.  An abort, an error or a
    limit of one engine may end an output early.  Prompts can differ if they continue outputs that an abort ended at
    different places.
    """
    for request_id, there in change.reference.twins.items():
        here = change.reference.expectations[request_id]
        if here.tokens[: here.prompt_len] != there.tokens[: there.prompt_len]:
            continue
        position = _first_difference(here, there)
        if position is not None:
            values = {"position": position, "token": here.tokens[position], "other": there.tokens[position]}
            yield found(request_ref(request_id), TwinCode.OTHER_TOKEN, **values)
            continue
        shorter, longer = sorted((here, there), key=lambda one: len(one.tokens))
        if shorter.reason == FinishReason.STOP and len(shorter.tokens) < len(longer.tokens):
            values = {"count": len(here.tokens) - here.prompt_len, "other": len(there.tokens) - there.prompt_len}
            yield found(request_ref(request_id), TwinCode.GOES_ON_AFTER_STOP, **values)


def _first_difference(here: Expectation, there: Expectation) -> int | None:
    """The first position at which both have a token and the tokens differ."""
    both = enumerate(zip(here.tokens, there.tokens, strict=False))
    return next((position for position, (one, other) in both if one != other), None)
