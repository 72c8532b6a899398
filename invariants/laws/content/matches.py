"""Matches: the cached prefix that a look-up finds is usable.

On a server: A request begins on pages that are freed or hold other tokens: a wrong answer, silently.
"""

from typing import NamedTuple

from swarden.invariants.events import Matched
from swarden.invariants.invariant import invariant
from swarden.invariants.prefixes import CHANGES_CONTENT, Columns, columns_of, is_usable
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref
from swarden.invariants.windows import first_needed_page


class MatchCode(Code):
    NOT_USABLE = "matched {length} tokens, which are not a usable cached prefix of whole pages"
    OTHER_PAGES = "matched the pages {pages}, the tree has {want}"


class Lookup(NamedTuple):
    """A match, and the cached pages of its whole key."""

    event: Matched
    columns: Columns


def lookups_in(change: Transition) -> list[Lookup]:
    """The matches before the first event that changed the tree's content; a split of a node does not change it."""
    lookups: list[Lookup] = []
    for event in change.tree_events:
        if isinstance(event, CHANGES_CONTENT):
            break
        if isinstance(event, Matched):
            lookups.append(Lookup(event, columns_of(change.before, event.namespace, event.key)))
    return lookups


@invariant(When.OP, needs=("nodes", "Inserted", "Removed"), on=(Matched,))
def matches_are_valid(change: Transition) -> Evidence:
    """A match is a cached prefix on the tree's pages, with all pages that the next token reads.

    Matches after the first change of the tree's content in a step are not checked.
    """
    page_size = change.after.limits.page_size
    for event, columns in change.once(lookups_in):
        count = event.length // page_size
        if event.length % page_size or not is_usable(change.before, columns, count):
            yield found(request_ref(event.request_id), MatchCode.NOT_USABLE, length=event.length)
            continue
        window = change.before.components[0].window
        first = 0 if window is None else first_needed_page(event.length, window, page_size)
        pages, want = tuple(event.pages), tuple(columns[0][:count])
        if pages[first:] != want[first:]:
            yield found(request_ref(event.request_id), MatchCode.OTHER_PAGES, pages=pages, want=want)
