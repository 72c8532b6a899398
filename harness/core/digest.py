"""Digests of runs: two runs with equal digests had equal free units, records, passes in flight and read tags in
every step.

Floats are left out, so a digest does not depend on the machine.
"""

import hashlib
from array import array
from collections.abc import Sequence

import msgspec

from swarden.invariants.events import Read
from swarden.invariants.following import Following
from swarden.invariants.transition import Transition
from swarden.invariants.view import Snapshot

DIGEST_BYTES = 6
MOST_DIGESTED = 512  # free units of a pool


def _plain(value: object) -> object:
    """Encode the arrays of rows, peers and tags, and the units that follow others, which msgspec does not support."""
    if isinstance(value, array):
        return value.tobytes()
    if isinstance(value, Following):
        return [*value]
    raise TypeError(f"{type(value).__name__} in a snapshot")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")


def encoded(facts: object) -> bytes:
    """Facts of snapshots as bytes; equal facts give equal bytes."""
    return _ENCODER.encode(facts)


def _ends(units: Sequence[int]) -> object:
    """A list whole, or what can have changed in a long one: its length and its ends, where units come and go.

    What stands between its ends was at an end before.
    """
    count = len(units)
    if count > MOST_DIGESTED:
        return count, units[: MOST_DIGESTED // 2], units[count - MOST_DIGESTED // 2 :]
    return units


class Digest:
    """The digest of a run: a hash of all transitions so far and of the current states."""

    def __init__(self) -> None:
        self._transitions = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, change: Transition) -> None:
        """Add a transition: the free units in order, the records, the passes in flight, and the tags that were read."""
        after = change.after
        facts = [
            after.step,
            [(_ends(pool.free), pool.fenced) for pool in after.pools],
            after.records,
            after.launches,
            [event.tags for event in change.events_of(Read)],
        ]
        self._transitions.update(_ENCODER.encode(facts))

    def of(self, snapshots: Sequence[Snapshot]) -> str:
        """The digest of all transitions so far and of these states."""
        total = self._transitions.copy()
        total.update(_ENCODER.encode([*map(_facts, snapshots)]))
        return total.hexdigest()


def _facts(snapshot: Snapshot) -> tuple[object, ...]:
    """The facts of a state; they include the holdings of the pools only if there are no records that name the units."""
    return (
        [pool.holdings for pool in snapshot.pools] if snapshot.records is None else None,
        snapshot.nodes,
        snapshot.requests,
        snapshot.is_paused,
        snapshot.sessions,
    )
