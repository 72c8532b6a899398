"""A request is rejected at arrival if, and only if, it could not run on an empty engine.

On a server: A request that can run is refused; or one that cannot run waits for ever, and blocks those behind it.
"""

from enum import StrEnum

from swarden.invariants.events import Rejected
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import Snapshot
from swarden.invariants.violation import Code, Evidence, found, request_ref


class RejectionCode(Code):
    COULD_RUN = "rejected, but {prompt_len} prompt tokens and {max_new_tokens} new tokens can run on an empty engine"
    CANNOT_RUN = "queued with {prompt_len} prompt tokens and {max_new_tokens} new tokens, but {reason}"


class Impossible(StrEnum):
    """Why a request could not run on an empty engine."""

    EMPTY_PROMPT = "its prompt is empty"
    CONTEXT_TOO_LONG = "prompt, max_new_tokens and lookahead exceed max_context_len"
    POOL_TOO_SMALL = "its prompt, one token and the lookahead need more pages than a pool has"


@invariant(When.OP, on=(Rejected,))
def rejected_requests_cannot_run(change: Transition) -> Evidence:
    """A request is rejected only if it is invalid, or could not run on an empty engine."""
    for event in change.events_of(Rejected):
        if not event.is_invalid and not _why_impossible(change.after, event.prompt_len, event.max_new_tokens):
            lens = {"prompt_len": event.prompt_len, "max_new_tokens": event.max_new_tokens}
            yield found(request_ref(event.request_id), RejectionCode.COULD_RUN, **lens)


@invariant(When.OP, needs=("requests",))
def impossible_requests_are_rejected(change: Transition) -> Evidence:
    """A request that cannot compute its first token on an empty engine, or is too long, is rejected at arrival."""
    earlier = change.before.request_by_id
    for request in change.after.requests or ():
        if request.id not in earlier:
            reason = _why_impossible(change.after, request.prompt_len, request.max_new_tokens)
            if reason is not None:
                lens = {"prompt_len": request.prompt_len, "max_new_tokens": request.max_new_tokens}
                yield found(request_ref(request.id), RejectionCode.CANNOT_RUN, reason=reason, **lens)


def _why_impossible(snapshot: Snapshot, prompt_len: int, max_new_tokens: int) -> Impossible | None:
    """Why a request could not run on an empty engine; None if it could.

    Prompt, output and lookahead must fit a row; prompt, one token and lookahead must fit each unwindowed pool.
    """
    limits = snapshot.limits
    if not prompt_len:
        return Impossible.EMPTY_PROMPT
    if prompt_len + max(max_new_tokens + limits.lookahead_len, limits.spare_len) > limits.max_context_len:
        return Impossible.CONTEXT_TOO_LONG
    needed = -(-(prompt_len + 1 + limits.lookahead_len) // limits.page_size)
    for component in snapshot.components:
        if component.window is None and needed > snapshot.pool(component.pool).capacity:
            return Impossible.POOL_TOO_SMALL
    return None
