"""What the prefix cache finds."""

from invariants.events import Demoted, Evicted, Inserted, Matched, Recovered, Removed, Tombstoned, TransferEnded
from invariants.invariant import invariant
from invariants.prefixes import longest_prefix
from invariants.transition import Transition, When
from invariants.violation import Evidence
from invariants.windows import first_needed_page
from invariants.wording import request_name

CHANGES_CONTENT = (Inserted, Recovered, Tombstoned, Removed, Demoted, Evicted, TransferEnded)


@invariant(When.OP, needs=("nodes",), on=(Matched,))
def matches_are_the_longest_valid(change: Transition) -> Evidence:
    """A match is the longest usable cached prefix, a token shorter than the key at least, on the tree's pages.

    Judged against the tree before the step, so only while nothing has come into it or left it;
    how its nodes were split meanwhile does not matter.
    """
    page_size = change.after.limits.page_size
    for event in change.tree_events:
        if isinstance(event, CHANGES_CONTENT):
            break
        if isinstance(event, Matched):
            usable = max(0, len(event.key) - 1)
            best = longest_prefix(change.before, event.namespace, event.key[: usable - usable % page_size])
            if event.length != best.length:
                yield request_name(event.request_id), f"matched {event.length} tokens, {best.length} are cached"
                continue
            window = change.before.components[0].window
            first = 0 if window is None else first_needed_page(best.length, window, page_size)
            if list(event.pages[first:]) != best.pages[first:]:
                found = f"the pages {list(event.pages)}, the tree has {best.pages}"
                yield request_name(event.request_id), f"matched {event.length} tokens on {found}"
