"""The field's KV events: which blocks of tokens are cached where, for whoever routes requests by them."""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from engine_under_test.events import Dropped, Event, Split, Stored, Uprooted

DEVICE, HOST = "device", "host"


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Pages of `block_size` tokens are cached in a pool and tier; `block_hashes` name each with all tokens before it.

    `parent_hash` names what is before the first; None where that begins at position 0.
    """

    pool: str
    tier: str
    block_hashes: tuple[str, ...]
    parent_hash: str | None
    token_ids: tuple[int, ...]
    block_size: int
    namespace: int


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Pages are cached no more in a pool and tier."""

    pool: str
    tier: str
    block_hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EventsLost:
    """So many events came before the next one and were given up, since nobody asked: what was heard before is stale."""

    count: int


KVEvent = BlockStored | BlockRemoved | EventsLost
MOST_EVENTS = 65_536  # kept for whoever asks; a cache of as many pages tells fewer in a step


class KVEvents:
    """An observer that tells the KV events since it was asked last, in order; give it to an engine among its ports.

    Whoever follows all of them knows what is cached.  Costs a hash of each page that comes into the cache.  Of what
    nobody asks for the last `most` are kept.
    """

    def __init__(self, page_size: int, *, most: int = MOST_EVENTS) -> None:
        self._page_size = page_size
        self._hashes: dict[int, Sequence[str]] = {}  # by node, of its pages in order
        self._told: deque[KVEvent] = deque(maxlen=most)
        self._num_lost = 0

    def __iter__(self) -> Iterator[KVEvent]:
        """Each event once; first of all, how many were lost."""
        lost, told = self._num_lost, list(self._told)
        self._num_lost = 0
        self._told.clear()
        return iter([EventsLost(lost), *told] if lost else told)

    def notice(self, event: Event) -> None:
        match event:
            case Stored():
                self._tell(self._stored(event))
            case Dropped():
                tier = HOST if event.on_host else DEVICE
                self._tell(BlockRemoved(event.component, tier, tuple(self._hashes[event.node])))
            case Split():
                pages = event.length // self._page_size
                hashes = self._hashes.get(event.node, ())
                self._hashes[event.upper], self._hashes[event.node] = hashes[:pages], hashes[pages:]
            case Uprooted():
                self._hashes.pop(event.node, None)
            case _:
                pass

    def _tell(self, event: KVEvent) -> None:
        self._num_lost += len(self._told) == self._told.maxlen
        self._told.append(event)

    def _stored(self, event: Stored) -> BlockStored:
        before = self._hashes.get(event.parent, ())
        parent_hash = before[-1] if before else None
        if event.node not in self._hashes:
            self._hashes[event.node] = list(self._chain(event, parent_hash))
        tier, hashes = HOST if event.on_host else DEVICE, tuple(self._hashes[event.node])
        return BlockStored(
            event.component, tier, hashes, parent_hash, tuple(event.key), self._page_size, event.namespace
        )

    def _chain(self, event: Stored, parent_hash: str | None) -> Iterator[str]:
        """A hash per page, of its tokens and of the hash before it."""
        tokens, above = iter(event.key), parent_hash or f"namespace {event.namespace}"
        while page := list(islice(tokens, self._page_size)):
            above = hashlib.blake2b(f"{above} {page}".encode(), digest_size=16).hexdigest()
            yield above
