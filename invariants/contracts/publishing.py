"""A published prefix can be matched at once.

On a server: The next request with the same prefix computes it again.
"""

from collections.abc import Sequence
from itertools import chain

from swarden.invariants.events import Demoted, Inserted, Preempted, RanOut, Removed, Retracted, Tombstoned
from swarden.invariants.invariant import invariant
from swarden.invariants.prefixes import longest_prefix
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RecordView
from swarden.invariants.violation import Code, Evidence, found, request_ref


class PublishingCode(Code):
    SHARES_OTHER_LEN = "published [0, {end}), but shares {protected_len} tokens"
    NOT_MATCHED = "published [0, {end}), but only {length} of {want} tokens match"


@invariant(When.OP, needs=("nodes", "records"), on=(Inserted,))
def published_prefixes_match(change: Transition) -> Evidence:
    """A prefix that a request has just published can be matched to its end, and the request shares all of it.

    Checked if the tree lost nothing since.  The prefix of a request that has ended is found by its client's tokens.
    """
    after = change.after
    for index, event in enumerate(change.tree_events):
        if isinstance(event, Inserted) and not _is_overtaken(change.tree_events[index + 1 :], event.request_id):
            subject, record = request_ref(event.request_id), after.record_by_request.get(event.request_id)
            if record is not None and record.protected_len != event.end:
                shared = record.protected_len
                yield found(subject, PublishingCode.SHARES_OTHER_LEN, end=event.end, protected_len=shared)
            namespace, key = _published(change, event, record)
            length = longest_prefix(after, namespace, key).length
            if length != len(key):
                yield found(subject, PublishingCode.NOT_MATCHED, end=event.end, length=length, want=len(key))


def _is_overtaken(later: Sequence[object], request_id: int) -> bool:
    """Did the tree lose pages afterwards, or did the request publish again or release its record?"""
    return any(
        isinstance(event, (Tombstoned, Demoted, Removed))
        or (isinstance(event, (Inserted, Retracted, RanOut, Preempted)) and event.request_id == request_id)
        for event in later
    )


def _published(change: Transition, event: Inserted, record: RecordView | None) -> tuple[int, Sequence[int]]:
    """The namespace and the tokens of a published prefix; no tokens if they are not known any more."""
    if record is not None:
        path = change.after.path(record.node)[::-1]
        return (path[0].namespace if path else 0), list(chain.from_iterable([node.key for node in path]))
    expected = change.reference.expectations.get(event.request_id)
    return (expected.namespace, expected.tokens[: event.end]) if expected else (0, [])
