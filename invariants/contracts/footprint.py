"""The most pages that a record may have: ahead for its lookahead, behind for its window and some slack.

On a server: Requests hold pages that they do not need yet or any more, so that fewer requests run.
"""

from collections.abc import Mapping

from swarden.invariants.events import HANDOVER_KIND, REQUEST_KIND
from swarden.invariants.invariant import invariant, state_invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.view import RecordView
from swarden.invariants.violation import Code, Evidence, found, owner_ref
from swarden.invariants.windows import kept_len


class FootprintCode(Code):
    TOO_FAR_AHEAD = "allocated_len is {allocated_len}, at most {most} with launched_len {launched_len}"
    TOO_FAR_BEHIND = (
        "keeps {kept_len} tokens of {component}, at most {most}: committed_len was {committed_len}, frontier {frontier}"
    )


@state_invariant(needs=("records",), reads=("records",))
def allocation_is_within_lookahead(change: Transition) -> Evidence:
    """Beyond its launched tokens a record has at most the pages for its lookahead.

    The record of a transfer has pages for all tokens that the other engine sends.
    """
    page_size, lookahead = change.after.limits.page_size, change.after.limits.lookahead_len
    for record in change.after.records or ():
        if record.allocated_len - record.launched_len > lookahead and record.owner.kind != HANDOVER_KIND:
            most = -(-(record.launched_len + lookahead) // page_size) * page_size
            if record.allocated_len > most:
                values = {"allocated_len": record.allocated_len, "launched_len": record.launched_len, "most": most}
                yield found(owner_ref(record.owner), FootprintCode.TOO_FAR_AHEAD, **values)


@invariant(When.STEP, needs=("records", "windowed"))
def private_windows_are_bounded(change: Transition) -> Evidence:
    """A request's private windowed pages hold at most a window, a page and window_slack of its earlier tokens.

    Earlier tokens were computed before the step.  Private pages are those that are not shared with the tree.
    """
    after, earlier = change.after, change.before.record_by_request
    for index, (component, page_size) in enumerate(zip(after.components, after.page_sizes, strict=True)):
        if component.window is not None:
            most = kept_len(component.window, page_size) + page_size - 1 + after.limits.window_slack
            for record in after.records or ():
                frontier = record.frontiers[index]
                if record.committed_len - max(frontier, record.protected_len) > most:
                    committed = _committed_before(earlier, record)
                    kept = committed - max(frontier, record.protected_len)
                    if kept > most:
                        yield found(
                            owner_ref(record.owner),
                            FootprintCode.TOO_FAR_BEHIND,
                            component=component.pool,
                            kept_len=kept,
                            most=most,
                            committed_len=committed,
                            frontier=frontier,
                        )


def _committed_before(before: Mapping[int, RecordView], record: RecordView) -> int:
    """The committed tokens of the record before the step, when windows last slid; 0 for a new record."""
    earlier = before.get(record.owner.id) if record.owner.kind == REQUEST_KIND else None
    return min(earlier.committed_len, record.committed_len) if earlier is not None else 0
