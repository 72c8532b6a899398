"""A capability of an engine as one object: what an adapter does for it, beside what it does for every engine."""

from typing import Any

from swarden.invariants.view import Snapshot


class Part:
    """A capability that an engine has in this configuration; an adapter has a list of them.

    `reported` are the names of the events that are reported with it alone.  `unreported` are those of the events that
    are not reported with it, and of the laws that do not apply to it.
    """

    reported: frozenset[str] = frozenset()
    unreported: frozenset[str] = frozenset()

    @property
    def has_work(self) -> bool:
        """Does something go on that needs further steps, although no request waits?"""
        return False

    @property
    def is_busy(self) -> bool:
        """Does something go on for which a pause waits?"""
        return False

    def attach(self, engine: Any) -> None:
        """Intercept calls of the engine, once, when it has been built."""

    def begin_step(self) -> None: ...

    def settle(self) -> None:
        """Report what has moved, before a snapshot."""

    def views(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what this capability shows."""
        return snapshot

    def clear(self) -> None:
        """At the end of a drain, before the caches are cleared."""
