"""The cache as a router knows it, from the KV events of a release."""

from typing import NamedTuple

from swarden.harness.kit.router import RouterView, Tier, events_of
from swarden.invariants.events import BlocksCleared, BlocksRemoved, BlocksStored
from swarden.invariants.view import CachedBlocks

DEVICE, HOST = Tier(0), Tier(0, on_host=True)


class BlockStored(NamedTuple):
    block_hashes: list[int]
    parent_block_hash: int | None
    medium: str = "GPU"


class BlockRemoved(NamedTuple):
    block_hashes: list[int]
    medium: str = "GPU"


class AllBlocksCleared(NamedTuple):
    pass


def view_after(*events):
    """The reported blocks of each tier, and the events that were reported."""
    reported: list[NamedTuple] = []
    view = RouterView([DEVICE, HOST], reported.append)
    view.follow(events_of(events, lambda event: event.medium == "CPU"))
    return {(one.group, one.on_host): one.reported for one in view.beside(lambda _: ())}, reported


def test_stored_blocks_are_known_in_their_tier_until_they_are_removed_there():
    blocks, _ = view_after(BlockStored([1, 2], None), BlockStored([1, 2], None, "CPU"), BlockRemoved([1]))

    assert blocks == {DEVICE: {2}, HOST: {1, 2}}


def test_nothing_is_known_after_all_blocks_were_cleared():
    blocks, _ = view_after(BlockStored([1], None), BlockStored([1], None, "CPU"), AllBlocksCleared())

    assert blocks == {DEVICE: set(), HOST: set()}


def test_events_of_a_release_are_reported_in_order():
    _, reported = view_after(BlockStored([2, 3], 1), BlockRemoved([2]), AllBlocksCleared())

    assert reported == [BlocksStored(0, (2, 3), 1), BlocksRemoved(0, (2,)), BlocksCleared()]


def test_view_is_beside_the_cached_blocks_and_those_that_move():
    view = RouterView([DEVICE], lambda _: None)
    view.follow([BlocksStored(0, (1,), None)])

    assert list(view.beside(lambda _: (1, 2), moving=(3,))) == [
        CachedBlocks(0, False, frozenset({1, 2}), frozenset({1}), frozenset({3}))
    ]
