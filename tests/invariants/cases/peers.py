"""Peer maps that lead two units to one, or to a unit that is not there any more."""

from dataclasses import replace

from invariants.peers import (
    a_free_unit_has_no_peer,
    every_taken_follower_unit_is_a_peer,
    peers_are_one_to_one_and_live,
    peers_share_their_owner,
    slot_peers_stay_in_their_place,
)
from invariants.view import Fence, PeerMap
from tests.invariants.builders import AFTER, HEALTHY, PRESSURE, after, broken, healthy, holding, peers, pools
from tests.invariants.host_builders import COPYING, LANDED, UNDER_WAY

BY_SLOT = [peer * 4 + offset if peer else 0 for peer in (AFTER.peer_maps or ())[0].peers for offset in range(4)]
STALE = [*BY_SLOT[:14], 0, 0, *BY_SLOT[16:]]
MIXED = [*BY_SLOT[:14], 14, 15, *BY_SLOT[16:]]


def slots(mapped):
    return replace(HEALTHY, after=replace(AFTER, peer_maps=(PeerMap("full", "swa", mapped, slots=4),)))


CASES = [
    healthy(peers_are_one_to_one_and_live),
    healthy(peers_are_one_to_one_and_live, slots(BY_SLOT), "by-slot"),
    broken(
        peers_are_one_to_one_and_live,
        "two-to-one",
        after(peer_maps=peers({1: 4})),
        ("swa page 4", "the peer of both full page 1 and 6"),
    ),
    broken(
        peers_are_one_to_one_and_live,
        "free",
        after(peer_maps=peers({1: 8})),
        ("full page 1", "its peer swa page 8 is free"),
    ),
    broken(
        peers_are_one_to_one_and_live,
        "fenced",
        after(peer_maps=peers({1: 8}), pools=pools("swa", free=[7], fenced=[Fence(7, [8])])),
        ("full page 1", "its peer swa page 8 is behind a fence"),
    ),
    healthy(a_free_unit_has_no_peer),
    broken(
        a_free_unit_has_no_peer,
        "free",
        after(peer_maps=peers({9: 7})),
        ("full page 9", "it is free, yet its peer is swa page 7"),
    ),
    healthy(every_taken_follower_unit_is_a_peer),
    healthy(
        every_taken_follower_unit_is_a_peer,
        after(pools=holding("swa", PRESSURE, [8])),
        "a-neighbour-needs-no-peer",
    ),
    broken(
        every_taken_follower_unit_is_a_peer,
        "unreachable",
        after(peer_maps=peers({7: 0})),
        ("swa page 5", "owned by request r1, yet the peer of no full page"),
    ),
    healthy(peers_share_their_owner),
    broken(
        peers_share_their_owner,
        "exchanged",
        after(peer_maps=peers({4: 5, 7: 2})),
        ("full page 4", "owned by tree n2, its peer swa page 5 is not: it is owned by request r1"),
        ("full page 7", "owned by request r1, its peer swa page 2 is not: it is owned by tree n2"),
    ),
    healthy(slot_peers_stay_in_their_place, slots(BY_SLOT)),
    healthy(slot_peers_stay_in_their_place, slots(STALE), "a-page-may-be-filled-in-part"),
    broken(
        slot_peers_stay_in_their_place,
        "two-pages",
        slots(MIXED),
        ("full page 3", "its slots have the peers [4, 5, 14, 15], not all in swa page 3"),
    ),
    healthy(every_taken_follower_unit_is_a_peer, UNDER_WAY, "a-load-has-no-reader-yet"),
    broken(
        every_taken_follower_unit_is_a_peer,
        "loaded-and-not-paired",
        replace(LANDED, after=replace(LANDED.after, peer_maps=COPYING.peer_maps)),
        ("swa page 7", "owned by tree n4, yet the peer of no full page"),
        ("swa page 8", "owned by tree n4, yet the peer of no full page"),
    ),
    broken(
        peers_share_their_owner,
        "paired-before-it-is-loaded",
        replace(LANDED, after=replace(LANDED.after, pools=COPYING.pools[1:2] + LANDED.after.pools[:1])),
        ("full page 11", "owned by tree n4, its peer swa page 7 is not: it is owned by load l2"),
        ("full page 12", "owned by tree n4, its peer swa page 8 is not: it is owned by load l2"),
    ),
]
