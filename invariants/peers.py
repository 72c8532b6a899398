"""The peer maps: which unit of one pool holds the same tokens as which unit of another."""

from collections.abc import Sequence
from itertools import chain, compress
from operator import eq

from invariants.invariant import state_invariant
from invariants.transition import Transition
from invariants.view import LOAD_KIND, OUTSIDE_KIND, PeerMap, PoolView, Snapshot
from invariants.violation import Evidence
from invariants.wording import standing, unit_of


@state_invariant(needs=("peer_maps",), reads=("peer_maps", "pools"))
def peers_are_one_to_one_and_live(change: Transition) -> Evidence:
    """A peer is live, and is the peer of one unit only.

    A stale entry lets a later free give away a page that is in use (sglang pull 27586).
    """
    for peers in change.changes.peer_maps:
        to_pool = change.after.pool(peers.to_pool)
        by_unit = peers.by_unit()
        used = list(filter(None, by_unit))
        distinct = set(used)
        if len(used) != len(distinct) or not distinct.isdisjoint(chain(to_pool.free, _fenced(to_pool))):
            yield from _shared_or_dead_peers(change.after, peers, by_unit)


@state_invariant(needs=("peer_maps",), reads=("peer_maps", "pools"))
def a_free_unit_has_no_peer(change: Transition) -> Evidence:
    """A unit that is free, or waits behind a fence, is the peer of nobody."""
    for peers in change.changes.peer_maps:
        from_pool = change.after.pool(peers.from_pool)
        by_unit = peers.by_unit()
        released = [unit for unit in chain(from_pool.free, _fenced(from_pool)) if unit < len(by_unit)]
        if any(map(by_unit.__getitem__, released)):
            for unit in released:
                if by_unit[unit]:
                    peer = unit_of(change.after.pool(peers.to_pool), by_unit[unit])
                    yield unit_of(from_pool, unit), f"{standing(from_pool.owner_of[unit])}, yet its peer is {peer}"


@state_invariant(needs=("peer_maps",), reads=("peer_maps", "pools"))
def every_taken_follower_unit_is_a_peer(change: Transition) -> Evidence:
    """Every unit of a follower pool that somebody owns is the peer of a unit, or nobody can reach it.

    What a load brings nobody is to reach before it has ended.
    """
    for peers in change.changes.peer_maps:
        to_pool = change.after.pool(peers.to_pool)
        unreachable = set(to_pool.held).difference(peers.by_unit())
        for unit in sorted(unreachable):
            owner = to_pool.owner_of[unit]
            if owner.kind not in (OUTSIDE_KIND, LOAD_KIND):
                yield unit_of(to_pool, unit), f"owned by {owner}, yet the peer of no {peers.from_pool} {to_pool.unit}"


@state_invariant(needs=("peer_maps",), reads=("peer_maps", "pools"))
def peers_share_their_owner(change: Transition) -> Evidence:
    """A unit and its peer hold the same tokens, so one owner must free both."""
    for peers in change.changes.peer_maps:
        from_pool, to_pool = change.after.pool(peers.from_pool), change.after.pool(peers.to_pool)
        by_unit = peers.by_unit()
        from_owner, to_owner = from_pool.owner_of, to_pool.owner_of
        owners = map(from_owner.get, compress(range(len(by_unit)), by_unit))
        if not all(map(eq, owners, map(to_owner.get, filter(None, by_unit)))):
            paired = [unit for unit in from_pool.held if unit < len(by_unit) and by_unit[unit]]
            for unit in paired:
                peer = by_unit[unit]
                if from_owner.get(unit) != to_owner.get(peer):
                    detail = f"owned by {from_owner.get(unit)}, its peer {unit_of(to_pool, peer)}"
                    yield unit_of(from_pool, unit), f"{detail} is not: {standing(to_owner.get(peer))}"


@state_invariant(needs=("slot_maps",), reads=("peer_maps", "pools"))
def slot_peers_stay_in_their_place(change: Transition) -> Evidence:
    """The slots of a unit that have peers have them in one unit, each at its own offset.

    Whoever clears some slots of a page and frees the whole leaves stale ones (sglang pull 27779).
    """
    for peers in change.after.slot_maps or ():
        from_pool, to_pool = change.after.pool(peers.from_pool), change.after.pool(peers.to_pool)
        size = peers.slots
        for unit in range(1, from_pool.capacity + 1):
            mapped = list(peers.peers[unit * size : unit * size + size])
            home = max(mapped) // size
            if any(slot and slot != home * size + offset for offset, slot in enumerate(mapped)):
                yield (
                    unit_of(from_pool, unit),
                    f"its slots have the peers {mapped}, not all in {unit_of(to_pool, home)}",
                )


def _fenced(pool: PoolView) -> list[int]:
    return [unit for fence in pool.fenced for unit in fence.units]


def _shared_or_dead_peers(snapshot: Snapshot, peers: PeerMap, by_unit: Sequence[int]) -> Evidence:
    from_pool, to_pool = snapshot.pool(peers.from_pool), snapshot.pool(peers.to_pool)
    released = {*to_pool.free, *_fenced(to_pool)}
    first: dict[int, int] = {}
    for unit, peer in enumerate(by_unit):
        if peer and peer in released:
            how = "free" if peer in to_pool.free else "behind a fence"
            yield unit_of(from_pool, unit), f"its peer {unit_of(to_pool, peer)} is {how}"
        if peer and (other := first.setdefault(peer, unit)) != unit:
            yield unit_of(to_pool, peer), f"the peer of both {unit_of(from_pool, other)} and {unit}"
