"""A short name for a state: equal digests, equal ids, cursors, links and tags.

Floats stay out, so a digest is the same on any machine.
"""

import hashlib
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from invariants.events import Read
from invariants.view import Snapshot

DIGEST_BYTES = 6


def _plain(value: object) -> object:
    """What msgspec does not know by itself: the arrays of rows, peers and tags."""
    if isinstance(value, array):
        return value.tobytes()
    raise TypeError(f"{type(value).__name__} in a snapshot")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain, order="deterministic")


def digest(snapshots: Sequence[Snapshot], events: Sequence[NamedTuple] = ()) -> str:
    """The digest of the states of some systems, and of the tags that were read on the way to them."""
    facts = [*map(_facts, snapshots), [event.tags for event in events if type(event) is Read]]
    return hashlib.blake2b(_ENCODER.encode(facts), digest_size=DIGEST_BYTES).hexdigest()


def _facts(snapshot: Snapshot) -> tuple[object, ...]:
    """What nodes and records hold they say themselves; where there are no records the pools do."""
    return (
        snapshot.step,
        [(pool.free, pool.fenced) for pool in snapshot.pools],
        [pool.holdings for pool in snapshot.pools] if snapshot.records is None else None,
        snapshot.nodes,
        snapshot.records,
        snapshot.requests,
        snapshot.launches,
        snapshot.is_paused,
        snapshot.sessions,
    )
