"""The chunk budget of a pass.

On a server: A pass is larger than planned: all requests in it wait longer, or the forward pass is out of memory.
"""

from swarden.invariants.events import Admitted, Launched
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Ref, found


class ChunkBudgetCode(Code):
    EMPTY = "computes nothing"
    PREFILLS_TOO_MUCH = "prefills {count} tokens, at most {most} are allowed"
    COMPUTES_TOO_MUCH = "computes {count} tokens, decodes included, at most {most} are allowed"


def chunks_are_limited(change: Transition) -> bool:
    """Do the limits name the length of a chunk (`chunk_len`)?"""
    return change.after.limits.chunk_len is not None


@invariant(When.OP, on=(Launched,))
def passes_prefill_within_chunk_len(change: Transition) -> Evidence:
    """A pass has at least one request, and prefills at most chunk_len tokens.

    An entry of one token counts as a decode.
    """
    budget = change.after.limits.chunk_len
    for event in change.events_of(Launched):
        subject = Ref("launch", event.launch)
        if not event.entries:
            yield found(subject, ChunkBudgetCode.EMPTY)
        prefilled = sum([end - start for _, start, end in event.entries if end - start > 1])
        if budget is not None and prefilled > budget:
            yield found(subject, ChunkBudgetCode.PREFILLS_TOO_MUCH, count=prefilled, most=budget)


@invariant(When.OP, on=(Admitted,), given=chunks_are_limited)
def mixed_passes_stay_within_chunk_len(change: Transition) -> Evidence:
    """A pass with a prefill computes at most chunk_len tokens, its decodes included."""
    budget = change.after.limits.chunk_len or 0
    for event in change.events_of(Launched):
        count = sum(end - start for _, start, end in event.entries)
        if count > budget and not change.admitted.isdisjoint([entry[0] for entry in event.entries]):
            yield found(Ref("launch", event.launch), ChunkBudgetCode.COMPUTES_TOO_MUCH, count=count, most=budget)
