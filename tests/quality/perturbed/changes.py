"""Perturbations: a bit or an entry of an engine is changed on purpose, and the violation that the change must cause."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple, TypeVar

import torch

from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.pools.kv_store import KVStore
from swarden.engine_under_test.units import lookback, num_pages
from swarden.invariants.events import CopyBegan, Filled
from swarden.invariants.violation import Ref, Violation

# No engine survives these; the level content of the strict check must notice each.
USED, CACHED, ON_HOST, ROW, PEER = "page.used", "page.cached", "page.on_host", "row.entry", "peer.entry"
COPIED, SENT = "copy.page", "link.page"

PlaceT = TypeVar("PlaceT")


class Slot(NamedTuple):
    """A slot of a pool."""

    pool: str
    page: int
    offset: int


class Blamed(NamedTuple):
    """The violation that a perturbation must cause: its law and subject, and one of its values.

    `changed` is the slot whose bytes were changed, if the change is noticed when that slot is read; a wrong peer
    `breaks_more` laws, of owners and peers, whose violations may follow.
    """

    law: str
    subject: Ref
    value: tuple[str, object]
    changed: Slot | None = None
    breaks_more: bool = False

    def is_alone_in(self, found: Sequence[Violation]) -> bool:
        """Whether this violation is the first one, and no other follows that it does not cause."""
        name, value = self.value
        first = found[0]
        is_first = (first.law, first.subject, first.values.get(name)) == (self.law, self.subject, value)
        return is_first and (self.breaks_more or len(found) == 1)


class Crossing(NamedTuple):
    """A moment at which a fault fires or not, and the source of the place that it changes."""

    fires: Callable[[], bool]
    chance: Random

    def choose(self, places: Sequence[PlaceT]) -> PlaceT | None:
        """One of the places, if there is one and the fault fires."""
        return self.chance.choice(places) if places and self.fires() else None


def perturb_copy(engine: Engine, copy: CopyBegan, crossing: Crossing) -> Blamed | None:
    """Flip a bit of the target of a copy that has ended."""
    memory = engine.memory
    assert memory.host is not None, "a copy job without a host"
    page = crossing.choose([(pool, *pair) for pool, *pages in copy.pages for pair in zip(*pages, strict=True)])
    if page is None:
        return None
    pool, here, there = page
    on_host = memory.host.pools[[device.name for device in memory.pools].index(pool)].name
    if copy.to_host:
        _flip(memory.host.store, on_host, there, crossing.chance)
    else:
        _flip(memory.store, pool, here, crossing.chance)
    return Blamed("copies_equal_their_source", Ref("page", here, pool), ("copy", Ref("page", there, on_host)))


def perturb_arrival(engine: Engine, event: Filled, crossing: Crossing) -> Blamed | None:
    """Flip a bit of a page that has arrived from the other engine, or exchange two of its slots."""
    page = crossing.choose(event.pages if event.checksums else ())
    if page is None:
        return None
    store, chance = engine.memory.store, crossing.chance
    has_exchanged = chance.randrange(2) == 1 and _exchange(store, event.pool, page, chance)
    if not has_exchanged:
        _flip(store, event.pool, page, chance)
    request = Ref("request", event.request_id)
    return Blamed("pages_arrive_as_they_were_sent", Ref("page", page, event.pool), ("request", request))


def _used(engine: Engine, crossing: Crossing) -> Blamed | None:
    memory, places = engine.memory, []
    for record in engine.scheduler.custody.records:
        for pool in memory.pools:
            first = 0 if pool.window is None else max(0, record.committed_len - lookback(pool.window))
            whole = slice(num_pages(first, memory.page_size), record.committed_len // memory.page_size)
            places += [(pool.name, page) for page in memory.ledgers.pages_of(pool.name, record.handles[whole]) if page]
    return _flip_one(memory.store, places, crossing)


def _cached(engine: Engine, crossing: Crossing) -> Blamed | None:
    memory = engine.memory
    places = [
        (pool.name, page)
        for node in _nodes(engine)
        for component, pool in enumerate(memory.pools)
        if node.live[component] and not node.locks[component]
        for page in memory.ledgers.pages_of(pool.name, node.handles)
    ]
    return _flip_one(memory.store, places, crossing)


def _on_host(engine: Engine, crossing: Crossing) -> Blamed | None:
    host = engine.memory.host
    if host is None:
        return None
    places = [
        (pool.name, page)
        for node in _nodes(engine)
        for pool, pages in zip(host.pools, node.host.pages, strict=True)
        for page in pages
    ]
    return _flip_one(host.store, places, crossing)


def _row(engine: Engine, crossing: Crossing) -> Blamed | None:
    memory, records = engine.memory, engine.scheduler.custody.with_row
    place = crossing.choose([(record, index) for record in records for index in range(len(record.handles))])
    if place is None:
        return None
    record, index = place
    other = _other(record.handles[index], memory.ledgers.anchor.capacity, crossing.chance)
    memory.table.write(record.row, index, [other])
    return Blamed("rows_match_their_records", Ref(*record.owner), ("index", index))


def _peer(engine: Engine, crossing: Crossing) -> Blamed | None:
    ledgers = engine.memory.ledgers
    place = crossing.choose(
        [
            (follower, handle)
            for follower in ledgers.followers
            for handle, peer in enumerate(ledgers.peers[follower.name])
            if peer
        ]
    )
    if place is None:
        return None
    follower, handle = place
    peers = ledgers.peers[follower.name]
    before, peers[handle] = peers[handle], _other(peers[handle], follower.capacity, crossing.chance)
    page, paired_with = Ref("page", handle, ledgers.anchor.name), Ref("page", before, follower.name)
    return Blamed("peers_change_only_by_pairing", page, ("paired_with", paired_with), breaks_more=True)


# Between two steps; each returns None if the fault does not fire, or the engine has no such place.
CHANGES: Mapping[str, Callable[[Engine, Crossing], Blamed | None]] = {
    USED: _used,
    CACHED: _cached,
    ON_HOST: _on_host,
    ROW: _row,
    PEER: _peer,
}


def _flip_one(store: KVStore, pages: Sequence[tuple[str, int]], crossing: Crossing) -> Blamed | None:
    """Flip a bit of one of the pages, each with the name of its pool."""
    place = crossing.choose(pages)
    if place is None:
        return None
    pool, page = place
    offset = _flip(store, pool, page, crossing.chance)
    slot = Slot(pool, page, offset)
    return Blamed("slots_keep_their_bytes", Ref("page", page, pool), ("offset", offset), slot)


def _flip(store: KVStore, pool: str, page: int, chance: Random) -> int:
    """Flip one bit of a page; the offset of its slot."""
    kv, dim = store.kv(pool), store.page_dim(pool)
    offset = chance.randrange(kv.shape[dim + 1])
    content = kv.select(dim, page).select(dim, offset)
    changed = content.reshape(-1).clone()
    changed.view(torch.uint8)[chance.randrange(changed.nbytes)] ^= 1 << chance.randrange(8)
    content.copy_(changed.view(content.shape))
    return offset


def _exchange(store: KVStore, pool: str, page: int, chance: Random) -> bool:
    """Exchange the contents of two slots of a page; False where they are equal."""
    kv, dim = store.kv(pool), store.page_dim(pool)
    slots = kv.select(dim, page)
    one, other = (slots.select(dim, chance.randrange(kv.shape[dim + 1])) for _ in range(2))
    if one.equal(other):
        return False
    kept = one.clone()
    one.copy_(other)
    other.copy_(kept)
    return True


def _nodes(engine: Engine) -> list[Node]:
    found = list(engine.cache.tree.roots.values())
    for node in found:
        found += node.children.values()
    return [node for node in found if node.in_tree]


def _other(page: int, capacity: int, chance: Random) -> int:
    """Another page than `page`."""
    return chance.choice([other for other in range(1, capacity + 1) if other != page])
