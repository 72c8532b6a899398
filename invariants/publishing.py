"""What the prefix cache keeps of what was published."""

from collections.abc import Sequence
from itertools import chain

from invariants.events import Demoted, Inserted, Preempted, RanOut, Removed, Retracted, Tombstoned
from invariants.invariant import invariant
from invariants.prefixes import longest_prefix
from invariants.transition import Transition, When
from invariants.view import RecordView
from invariants.violation import Evidence
from invariants.wording import request_name


@invariant(When.OP, needs=("nodes", "records"), on=(Inserted,))
def inserted_prefixes_match(change: Transition) -> Evidence:
    """What a request has just published can be matched to its end.

    Judged where the tree lost nothing since; of a request that ended with it, by the tokens that
    its client knows.
    """
    after = change.after
    for index, event in enumerate(change.tree_events):
        if isinstance(event, Inserted) and not _is_overtaken(change.tree_events[index + 1 :], event.request_id):
            subject, record = request_name(event.request_id), after.record_by_request.get(event.request_id)
            if record is not None and record.protected_len != event.end:
                yield subject, f"published [0, {event.end}), yet shares {record.protected_len} tokens"
            namespace, key = _published(change, event, record)
            found = longest_prefix(after, namespace, key).length
            if found != len(key):
                yield subject, f"published [0, {event.end}), yet only {found} of {len(key)} tokens match"


def _is_overtaken(later: Sequence[object], request_id: int) -> bool:
    """Did the tree lose something afterwards, or the request publish again or start anew?"""
    return any(
        isinstance(event, (Tombstoned, Demoted, Removed))
        or (isinstance(event, (Inserted, Retracted, RanOut, Preempted)) and event.request_id == request_id)
        for event in later
    )


def _published(change: Transition, event: Inserted, record: RecordView | None) -> tuple[int, Sequence[int]]:
    """The namespace and the tokens of what was published; no tokens where nobody knows them any more."""
    if record is not None:
        path = change.after.path(record.node)[::-1]
        return (path[0].namespace if path else 0), list(chain.from_iterable([node.key for node in path]))
    expected = change.reference.expectations.get(event.request_id)
    return (expected.namespace, expected.tokens[: event.end]) if expected else (0, [])
