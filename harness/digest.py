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


def digest(snapshot: Snapshot, events: Sequence[NamedTuple] = ()) -> str:
    """The digest of a state and of the tags that were read on the way to it."""
    facts = (
        snapshot.step,
        [
            (pool.free, pool.fenced, [(holding.owner, holding.units) for holding in pool.holdings])
            for pool in snapshot.pools
        ],
        snapshot.nodes,
        snapshot.records,
        snapshot.requests,
        [event.tags for event in events if type(event) is Read],
    )
    return hashlib.blake2b(_ENCODER.encode(facts), digest_size=DIGEST_BYTES).hexdigest()
