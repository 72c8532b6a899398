"""A look-up finds the longest usable prefix.

On a server: A prompt is computed that is cached: latency and work, while all answers are right.
"""

from swarden.invariants.events import Matched
from swarden.invariants.invariant import invariant
from swarden.invariants.laws.content.matches import lookups_in
from swarden.invariants.prefixes import longest_usable
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, found, request_ref


class LongestMatchCode(Code):
    TOO_SHORT = "matched {length} tokens, {usable} are usable"
    WHOLE_KEY = "matched all {length} tokens, so none is left to compute"


@invariant(When.OP, needs=("nodes", "Inserted", "Removed"), on=(Matched,))
def matches_are_longest(change: Transition) -> Evidence:
    """A match is the longest usable cached prefix that leaves at least one token of the key to compute.

    Host copies do not count.  Matches after the first change of the tree in a step are not checked.
    """
    page_size = change.after.limits.page_size
    for event, columns in change.once(lookups_in):
        subject, most = request_ref(event.request_id), max(0, len(event.key) - 1) // page_size
        usable = longest_usable(change.before, [column[:most] for column in columns])
        if event.length < usable.length:
            yield found(subject, LongestMatchCode.TOO_SHORT, length=event.length, usable=usable.length)
        elif event.length >= len(event.key) > 0:
            yield found(subject, LongestMatchCode.WHOLE_KEY, length=event.length)
