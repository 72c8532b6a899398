"""Peer maps in which a peer is shared, free, fenced or missing."""

from dataclasses import replace

from swarden.invariants.events import Owner
from swarden.invariants.laws.memory.peers import (
    PeerCode,
    free_units_have_no_peer,
    held_follower_units_are_peers,
    peers_are_unique_and_live,
    peers_share_their_owner,
    slot_peers_keep_their_offset,
)
from swarden.invariants.view import Fence, PeerMap
from swarden.invariants.violation import found
from tests.invariants.builders import AFTER, HEALTHY, R1, after, broken, healthy, page, peers, pools

BY_SLOT = [peer * 4 + offset if peer else 0 for peer in (AFTER.peer_maps or ())[0].peers for offset in range(4)]
STALE = [*BY_SLOT[:14], 0, 0, *BY_SLOT[16:]]
MIXED = [*BY_SLOT[:14], 14, 15, *BY_SLOT[16:]]


def slots(mapped):
    return replace(HEALTHY, after=replace(AFTER, peer_maps=(PeerMap("full", "swa", mapped, slots=4),)))


def differ(unit, owner, peer, peer_owner):
    return found(unit, PeerCode.OWNERS_DIFFER, owner=owner, peer=peer, peer_owner=peer_owner)


CASES = [
    healthy(peers_are_unique_and_live, slots(BY_SLOT), "by-slot"),
    broken(
        peers_are_unique_and_live,
        "peer-of-two-units",
        after(peer_maps=peers({1: 4})),
        found(page("swa", 4), PeerCode.PEER_OF_TWO, units=(page("full", 1), page("full", 6))),
    ),
    broken(
        peers_are_unique_and_live,
        "free",
        after(peer_maps=peers({1: 8})),
        found(page("full", 1), PeerCode.PEER_FREE, peer=page("swa", 8)),
    ),
    broken(
        peers_are_unique_and_live,
        "fenced",
        after(peer_maps=peers({1: 8}), pools=pools("swa", free=[7], fenced=[Fence(7, [8])])),
        found(page("full", 1), PeerCode.PEER_FENCED, peer=page("swa", 8)),
    ),
    broken(
        free_units_have_no_peer,
        "free",
        after(peer_maps=peers({9: 7})),
        found(page("full", 9), PeerCode.PAIRED_WHILE_FREE, peer=page("swa", 7)),
    ),
    broken(
        free_units_have_no_peer,
        "fenced",
        after(peer_maps=peers({9: 7}), pools=pools("full", free=[10, 11, 12], fenced=[Fence(7, [9])])),
        found(page("full", 9), PeerCode.PAIRED_WHILE_FENCED, peer=page("swa", 7)),
    ),
    broken(
        held_follower_units_are_peers,
        "no-peer",
        after(peer_maps=peers({7: 0})),
        found(page("swa", 5), PeerCode.PEER_OF_NONE, owner=R1, from_pool="full"),
    ),
    broken(
        peers_share_their_owner,
        "peers-exchanged",
        after(peer_maps=peers({4: 5, 7: 2})),
        differ(page("full", 4), Owner("tree", 2), page("swa", 5), R1),
        differ(page("full", 7), R1, page("swa", 2), Owner("tree", 2)),
    ),
    healthy(slot_peers_keep_their_offset, slots(STALE), "partly-filled-page"),
    broken(
        slot_peers_keep_their_offset,
        "peers-in-two-pages",
        slots(MIXED),
        found(page("full", 3), PeerCode.SLOTS_SCATTERED, slots=(4, 5, 14, 15), peer=page("swa", 3)),
    ),
]
