"""The types of events that the blocks of the kit report: an engine must name those that it never reports."""

from collections.abc import Iterable

import swarden.invariants.events as seen

OF_PASSES = (seen.Launched, seen.Completed, seen.Discarded, seen.Read, seen.Written, seen.Proposed, seen.Verified)
OF_OWNERS = (seen.Taken, seen.Freed, seen.Given)
OF_ROUTERS = (seen.BlocksStored, seen.BlocksRemoved, seen.BlocksCleared)
OF_CLIENTS = (seen.Finished, seen.Rejected, seen.Fired)


def names_of(kinds: Iterable[type[object]]) -> frozenset[str]:
    """The names by which laws ask for types of events."""
    return frozenset([kind.__name__ for kind in kinds])
