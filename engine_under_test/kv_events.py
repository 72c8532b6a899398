"""KV events: which blocks of tokens are cached where; a router places requests by them."""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from swarden.invariants.events import Dropped, Event, Rooted, Split, Stored, Uprooted

DEVICE, HOST = "device", "host"


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Pages of `block_size` tokens are cached in a pool and tier; `block_hashes` name each behind its prefix."""

    pool: str
    tier: str
    block_hashes: tuple[str, ...]
    parent_hash: str | None  # of the page before the first one; None if that begins at position 0
    token_ids: tuple[int, ...]
    block_size: int
    namespace: int


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """Pages are no longer cached in a pool and tier."""

    pool: str
    tier: str
    block_hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EventsLost:
    """The full queue dropped `count` events before the next one, so the reader's view of the cache is stale."""

    count: int


KVEvent = BlockStored | BlockRemoved | EventsLost
MOST_EVENTS = 65_536  # the limit of the queue; one step of a cache of as many pages makes fewer events


class KVEvents:
    """An observer that queues the KV events in order; an iteration takes all queued events.

    The events of an engine together give the content of its cache.  The cost is one hash of each page that is cached.
    The queue holds the last `most` events.
    """

    def __init__(self, page_size: int, *, most: int = MOST_EVENTS) -> None:
        self._page_size = page_size
        self._hashes: dict[int, Sequence[str]] = {}  # by node, of its pages in order
        self._queue: deque[KVEvent] = deque(maxlen=most)
        self._num_lost = 0

    def __iter__(self) -> Iterator[KVEvent]:
        """Each event once, after the number of dropped events, if any."""
        num_lost, events = self._num_lost, list(self._queue)
        self._num_lost = 0
        self._queue.clear()
        return iter([EventsLost(num_lost), *events] if num_lost else events)

    def notice(self, event: Event) -> None:
        match event:
            case Rooted():
                self._learn(event)
            case Stored():
                self._append(self._stored(event))
            case Dropped():
                tier = HOST if event.on_host else DEVICE
                self._append(BlockRemoved(event.component, tier, tuple(self._hashes[event.node])))
            case Split():
                pages = event.length // self._page_size
                hashes = self._hashes.get(event.node, ())
                self._hashes[event.upper], self._hashes[event.node] = hashes[:pages], hashes[pages:]
            case Uprooted():
                self._hashes.pop(event.node, None)
            case _:
                pass

    def _append(self, event: KVEvent) -> None:
        self._num_lost += len(self._queue) == self._queue.maxlen
        self._queue.append(event)

    def _stored(self, event: Stored) -> BlockStored:
        parent_hash = self._learn(event)
        tier, hashes = HOST if event.on_host else DEVICE, tuple(self._hashes[event.node])
        return BlockStored(
            event.component, tier, hashes, parent_hash, tuple(event.key), self._page_size, event.namespace
        )

    def _learn(self, event: Rooted | Stored) -> str | None:
        """Compute the hashes of a node's pages, even if it never holds units; returns the hash of the page before."""
        before = self._hashes.get(event.parent, ())
        parent_hash = before[-1] if before else None
        if event.node not in self._hashes:
            self._hashes[event.node] = list(page_hashes(event.key, parent_hash, event.namespace, self._page_size))
        return parent_hash


def page_hashes(tokens: Sequence[int], parent_hash: str | None, namespace: int, page_size: int) -> Iterator[str]:
    """A hash per page, of its tokens and of the previous hash, or of the namespace before the first page."""
    rest, above = iter(tokens), parent_hash or f"namespace {namespace}"
    while page := list(islice(rest, page_size)):
        above = hashlib.blake2b(f"{above} {page}".encode(), digest_size=16).hexdigest()
        yield above
