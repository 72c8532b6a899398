"""The tokens that clients get.

On a server: A client gets a wrong answer, too many tokens, or tokens before they are computed.
"""

from collections import Counter

from swarden.invariants.events import Compared, Read, TakenOver
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class OutputCode(Code):
    WRONG_TOKEN = "token {token} at position {position}, the reference has {want}"
    WRONG_LOGITS = (
        "the logits at position {position} of [{start}, {end}) are off by {difference}, tolerance {tolerance}"
    )
    WRONG_TOKEN_SAMPLED = "token {token} is sampled at position {position}, the uncached model has {want}"
    WRONG_TOKEN_STREAMED = "token {token} is streamed at position {position}, the uncached model has {want}"
    NOT_COMPUTED = "{num_new} new tokens are streamed, but the valid results of the step have {num_computed}"
    COMPUTED_IN_PART = "a token is streamed after {num_computed} of its {num_known} tokens are computed"
    TOO_LONG = "{num_outputs} tokens are streamed, {asked} were requested"


def tokens_are_known(change: Transition) -> bool:
    """Does the reference have the prompts and the output tokens of any requests?"""
    return bool(change.reference.expectations)


def outputs_are_predictable(change: Transition) -> bool:
    """Does the reference predict the output tokens, as with a model of tags?"""
    return change.reference.vocabulary > 0


def logits_are_compared(change: Transition) -> bool:
    """Does a real model run, whose logits are compared with those without a cache?"""
    return Compared in change.by_type


@invariant(When.STEP, needs=("requests",), given=outputs_are_predictable)
def outputs_match_reference(change: Transition) -> Evidence:
    """A client gets the tokens that the reference computes from the token ids."""
    windows, vocabulary = change.reference.windows, change.reference.vocabulary
    for request, expected in change.grown:
        for position in range(expected.prompt_len + request.num_outputs, len(expected.tokens)):
            want = expected.next_token(position, windows=windows, vocabulary=vocabulary)
            got = expected.tokens[position]
            if got != want:
                yield found(request_ref(request.id), OutputCode.WRONG_TOKEN, position=position, token=got, want=want)
                break


# A fake forward reports Read, a real model Compared.  `Read` is in `on` so that a run with a fake forward counts these
# invariants as not applicable (`given` is false then).  Without it they would not be counted at all.
@invariant(When.OP, on=(Read, Compared), given=logits_are_compared)
def logits_match_uncached_model(change: Transition) -> Evidence:
    """The logits of every position for which they are requested are those of a model without a cache.

    They may differ by the tolerance of the event.  Differences of discarded results are ignored: the results may depend
    on slots that a failed pass did not write.
    """
    for event in change.events_of(Compared):
        is_close = event.difference is None or event.difference <= event.tolerance  # False for NaN
        if not is_close and (event.launch, event.request_id) not in change.discarded:
            yield found(
                request_ref(event.request_id),
                OutputCode.WRONG_LOGITS,
                start=event.start,
                end=event.end,
                position=event.position,
                difference=event.difference,
                tolerance=event.tolerance,
            )


@invariant(When.OP, on=(Read, Compared), given=logits_are_compared)
def outputs_match_uncached_model(change: Transition) -> Evidence:
    """With greedy sampling, a pass samples and a client gets the most likely token of a model without a cache."""
    for event in change.events_of(Compared):
        want = event.likeliest
        if want is not None and (event.launch, event.request_id) not in change.discarded:
            subject = request_ref(event.request_id)
            if event.token != want:
                code = OutputCode.WRONG_TOKEN_SAMPLED
                yield found(subject, code, position=event.end, token=event.token, want=want)
            for token in change.reference.tokens_of(event.request_id)[event.end : event.end + 1]:
                if token not in (want, event.token):
                    yield found(subject, OutputCode.WRONG_TOKEN_STREAMED, position=event.end, token=token, want=want)


@invariant(When.STEP, needs=("requests", "launches", "Completed"), given=tokens_are_known)
def clients_get_only_computed_tokens(change: Transition) -> Evidence:
    """A client gets only tokens of the step's valid results, and each only after all tokens before it are computed.

    When a request is taken over from another engine, the tokens computed there count, too.
    """
    lens_before = {request.id: expected.prompt_len + request.num_outputs for request, expected in change.grown}
    computed = Counter({event.request_id: len(event.tokens) for event in change.events_of(TakenOver)})
    parts: dict[int, int] = {}  # by request, the end of a result that computes only a part of its known tokens
    for landing in change.landings:
        end = landing.end - landing.accepted
        if landing.counts and end >= lens_before.get(landing.request_id, 0) + computed[landing.request_id]:
            computed[landing.request_id] += 1 + landing.accepted
        elif landing.counts:
            parts[landing.request_id] = end
    for request, expected in change.grown:
        num_known, most = lens_before[request.id], computed[request.id]
        num_new = len(expected.tokens) - num_known
        if num_new > most and request.id in parts:
            values = {"num_computed": parts[request.id], "num_known": num_known}
            yield found(request_ref(request.id), OutputCode.COMPUTED_IN_PART, **values)
        elif num_new > most:
            yield found(request_ref(request.id), OutputCode.NOT_COMPUTED, num_new=num_new, num_computed=most)


@invariant(When.STEP, needs=("requests",), given=tokens_are_known)
def outputs_stay_within_max_new_tokens(change: Transition) -> Evidence:
    """A client gets at most max_new_tokens tokens, unless it has aborted the request."""
    for request, expected in change.grown:
        if expected.len_at_abort is None:
            count, most = len(expected.tokens) - expected.prompt_len, max(request.max_new_tokens, 0)
            if count > most:
                yield found(request_ref(request.id), OutputCode.TOO_LONG, num_outputs=count, asked=most)
