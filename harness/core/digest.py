"""A short name for a run up to an op: equal digests, equal ids, cursors, links and tags in every step.

Floats stay out, so a digest is the same on any machine.
"""

import hashlib
from array import array
from collections.abc import Sequence

import msgspec

from invariants.events import Read
from invariants.transition import Transition
from invariants.view import Snapshot

DIGEST_BYTES = 6


def _plain(value: object) -> object:
    """What msgspec does not know by itself: the arrays of rows, peers and tags."""
    if isinstance(value, array):
        return value.tobytes()
    raise TypeError(f"{type(value).__name__} in a snapshot")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")


class Digest:
    """The digest of a run: of the states after each op, and of what happened in all steps on the way to them."""

    def __init__(self) -> None:
        self._on_the_way = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, change: Transition) -> None:
        """One transition: free units in their order, cursors, passes in flight, and the tags that were read."""
        after = change.after
        facts = [
            after.step,
            [(pool.free, pool.fenced) for pool in after.pools],
            after.records,
            after.launches,
            [event.tags for event in change.events_of(Read)],
        ]
        self._on_the_way.update(_ENCODER.encode(facts))

    def of(self, snapshots: Sequence[Snapshot]) -> str:
        """The digest of these states, behind all transitions so far."""
        total = self._on_the_way.copy()
        total.update(_ENCODER.encode([*map(_facts, snapshots)]))
        return total.hexdigest()


def _facts(snapshot: Snapshot) -> tuple[object, ...]:
    """What nodes and records hold they say themselves; where there are no records the pools do."""
    return (
        [pool.holdings for pool in snapshot.pools] if snapshot.records is None else None,
        snapshot.nodes,
        snapshot.requests,
        snapshot.is_paused,
        snapshot.sessions,
    )
