"""The peer maps: for a unit of one pool, the unit of another pool that holds the same tokens.

On a server: Freeing a page also frees the windowed page of another request: a wrong answer, silently, or a double
free.
"""

from collections.abc import Sequence
from itertools import chain, compress, islice
from operator import eq

from swarden.invariants.events import LOAD_KIND, OUTSIDE_KIND
from swarden.invariants.invariant import state_invariant
from swarden.invariants.transition import Transition
from swarden.invariants.view import FREE, PeerMap, PoolView, Snapshot
from swarden.invariants.violation import Code, Evidence, Found, Ref, found, unit_ref


class PeerCode(Code):
    PEER_FREE = "its peer {peer} is free"
    PEER_FENCED = "its peer {peer} is fenced"
    PEER_OF_TWO = "the peer of both {units}"
    PAIRED_WHILE_FREE = "free, but its peer is {peer}"
    PAIRED_WHILE_FENCED = "fenced, but its peer is {peer}"
    PEER_OF_NONE = "owned by {owner}, but the peer of no unit of {from_pool}"
    OWNERS_DIFFER = "owned by {owner}, but its peer {peer} is owned by {peer_owner}"
    SLOTS_SCATTERED = "the peers of its slots are {slots}, not all in {peer} at the same offset"


@state_invariant(needs=("peer_maps",), reads=("peer_maps", "pools"))
def peers_are_unique_and_live(change: Transition) -> Evidence:
    """A peer is neither free nor fenced, and is the peer of one unit only.

    With a stale entry a later free releases a page that is in use (sglang pull 27586).
    """
    for peers in change.changes.peer_maps:
        to_pool = change.after.pool(peers.to_pool)
        by_unit = peers.by_unit()
        used = list(filter(None, by_unit))
        distinct = set(used)
        if len(used) != len(distinct) or not distinct.isdisjoint(chain(to_pool.free, _fenced(to_pool))):
            yield from _shared_or_dead_peers(change.after, peers, by_unit)


@state_invariant(needs=("peer_maps",), reads=("peer_maps", "pools"))
def free_units_have_no_peer(change: Transition) -> Evidence:
    """A free or fenced unit has no peer."""
    for peers in change.changes.peer_maps:
        from_pool, to_pool = change.after.pool(peers.from_pool), change.after.pool(peers.to_pool)
        by_unit = peers.by_unit()
        paired = set(compress(range(len(by_unit)), by_unit))
        if not paired.isdisjoint(chain(from_pool.free, _fenced(from_pool))):
            for unit in filter(paired.__contains__, chain(from_pool.free, _fenced(from_pool))):
                owner, peer = from_pool.owner_of[unit], unit_ref(to_pool, by_unit[unit])
                yield paired_while_released(unit_ref(from_pool, unit), peer, is_free=owner == FREE)


@state_invariant(needs=("peer_maps",), reads=("peer_maps", "pools"))
def held_follower_units_are_peers(change: Transition) -> Evidence:
    """Every owned unit of a follower pool is the peer of a unit; otherwise no request can use it.

    The units of a load get their peers when it ends; units that are taken from outside the engine have none.
    """
    for peers in change.changes.peer_maps:
        to_pool = change.after.pool(peers.to_pool)
        unreachable = set(to_pool.held).difference(peers.by_unit())
        for unit in sorted(unreachable):
            owner = to_pool.owner_of[unit]
            if owner.kind not in (OUTSIDE_KIND, LOAD_KIND):
                yield found(unit_ref(to_pool, unit), PeerCode.PEER_OF_NONE, owner=owner, from_pool=peers.from_pool)


@state_invariant(needs=("peer_maps",), reads=("peer_maps", "pools"))
def peers_share_their_owner(change: Transition) -> Evidence:
    """A unit and its peer hold the same tokens, so one owner must free both."""
    for peers in change.changes.peer_maps:
        from_pool, to_pool = change.after.pool(peers.from_pool), change.after.pool(peers.to_pool)
        by_unit = peers.by_unit()
        from_owner, to_owner = from_pool.owner_of, to_pool.owner_of
        owners = map(from_owner.get, compress(range(len(by_unit)), by_unit))
        if not all(map(eq, owners, map(to_owner.get, filter(None, by_unit)))):
            for unit in [unit for unit in from_pool.held if unit < len(by_unit) and by_unit[unit]]:
                peer = by_unit[unit]
                if from_owner.get(unit) != to_owner.get(peer):
                    yield found(
                        unit_ref(from_pool, unit),
                        PeerCode.OWNERS_DIFFER,
                        owner=from_owner.get(unit),
                        peer=unit_ref(to_pool, peer),
                        peer_owner=to_owner.get(peer),
                    )


@state_invariant(needs=("slot_maps",), reads=("peer_maps", "pools"))
def slot_peers_keep_their_offset(change: Transition) -> Evidence:
    """All peers of a unit's slots are in one unit, each at the offset of its slot.

    If a free of a page clears only some of its slots, the others are stale (sglang pull 27779).
    """
    for peers in change.after.slot_maps or ():
        from_pool, to_pool = change.after.pool(peers.from_pool), change.after.pool(peers.to_pool)
        size = peers.slots
        for unit, mapped in islice(enumerate(peers.slots_by_unit()), 1, None):  # without the padding unit
            home = max(mapped) // size
            is_stale = home and mapped != (*range(home * size, home * size + size),)
            if is_stale and any(slot and slot != home * size + offset for offset, slot in enumerate(mapped)):
                yield found(
                    unit_ref(from_pool, unit), PeerCode.SLOTS_SCATTERED, slots=mapped, peer=unit_ref(to_pool, home)
                )


def released_peer(unit: Ref, peer: Ref, *, is_free: bool) -> Found:
    """A unit whose peer is free or fenced."""
    return found(unit, PeerCode.PEER_FREE if is_free else PeerCode.PEER_FENCED, peer=peer)


def paired_while_released(unit: Ref, peer: Ref, *, is_free: bool) -> Found:
    """A free or fenced unit that has a peer."""
    return found(unit, PeerCode.PAIRED_WHILE_FREE if is_free else PeerCode.PAIRED_WHILE_FENCED, peer=peer)


def peer_of_two(peer: Ref, units: tuple[Ref, Ref]) -> Found:
    """A unit that is the peer of two units."""
    return found(peer, PeerCode.PEER_OF_TWO, units=units)


def _fenced(pool: PoolView) -> list[int]:
    return [unit for fence in pool.fenced for unit in fence.units]


def _shared_or_dead_peers(snapshot: Snapshot, peers: PeerMap, by_unit: Sequence[int]) -> Evidence:
    from_pool, to_pool = snapshot.pool(peers.from_pool), snapshot.pool(peers.to_pool)
    released, free = {*to_pool.free, *_fenced(to_pool)}, set(to_pool.free)
    first: dict[int, int] = {}
    for unit, peer in enumerate(by_unit):
        if peer and peer in released:
            yield released_peer(unit_ref(from_pool, unit), unit_ref(to_pool, peer), is_free=peer in free)
        if peer and (other := first.setdefault(peer, unit)) != unit:
            yield peer_of_two(unit_ref(to_pool, peer), (unit_ref(from_pool, other), unit_ref(from_pool, unit)))
