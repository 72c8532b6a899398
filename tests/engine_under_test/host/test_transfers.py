"""Transfers: what they move of which node, what is told of them, and whose turn an acknowledgement is."""

import pytest

from engine_under_test.errors import AccountingError
from engine_under_test.events import TransferBegan, TransferEnded
from engine_under_test.host.transfers import Move, Part, page_indices, transfer_owner
from engine_under_test.units import Owner
from tests.engine_under_test.host.bench import HOSTED_SWA_ONLY, HostBench

LONG, OTHER = list(range(100, 120)), list(range(200, 220))


def under_way(bench: HostBench):
    """The only transfer that has not ended."""
    [transfer] = bench.tier.under_way
    return transfer


def backup(tokens=LONG) -> HostBench:
    bench = HostBench()
    bench.cached(tokens)
    bench.tier.back_up()
    return bench


@pytest.mark.parametrize(
    ("to_host", "owner"), [(True, Owner("backup", 3)), (False, Owner("load", 3))], ids=["backup", "load"]
)
def test_pages_under_way_are_the_transfers_own(to_host, owner):
    assert transfer_owner(3, to_host=to_host) == owner


def test_a_transfer_knows_whose_its_pages_are():
    assert under_way(backup()).owner == Owner("backup", 1)


def test_pages_of_a_node_are_counted_from_the_root():
    bench = HostBench()
    bench.cached(LONG)

    assert [page_indices(node, 4) for node in bench.nodes()] == [range(3), range(3, 5)]


def test_a_part_names_its_pages_on_either_side():
    bench = HostBench()
    bench.cached(LONG[:8])
    part = Part(bench.nodes()[0], 0, [Move(3, 7), Move(4, 8)])

    assert (part.on_device, part.on_host) == ([3, 4], [7, 8])


def test_parts_come_from_the_root_on_and_pool_by_pool():
    bench = backup()

    parts = list(under_way(bench).parts(4))

    upper, leaf = bench.nodes()
    assert [(part.node, part.component, part.on_device) for part in parts] == [
        (upper, 0, [16, 15, 14]),
        (upper, 1, [12, 11, 10]),
        (leaf, 0, [13, 12]),
        (leaf, 1, [9, 8]),
    ]


def test_a_split_shares_a_part_out():
    bench = backup(LONG[:8])
    upper = bench.tree.split(bench.nodes()[0], 4)

    parts = list(under_way(bench).parts(4))

    lower = bench.nodes()[1]
    assert [(part.node, part.component, part.on_host) for part in parts] == [
        (upper, 0, [32]),
        (upper, 1, [24]),
        (lower, 0, [31]),
        (lower, 1, [23]),
    ]


def test_what_a_transfer_does_not_move_is_no_part_of_it():
    bench = HostBench()
    bench.demoted(LONG)

    bench.load([*LONG, 1])

    assert [(part.node.start, part.component) for part in under_way(bench).parts(4)] == [(0, 0), (12, 0), (12, 1)]


@pytest.mark.parametrize("to_host", [True, False], ids=["backup", "load"])
def test_the_beginning_is_told_with_the_pages_of_either_side(to_host):
    bench = HostBench(HOSTED_SWA_ONLY)
    bench.demoted(LONG[:8])
    bench.load([*LONG[:8], 1])

    began = {event.to_host: event for event in bench.heard.of(TransferBegan)}

    on_device = {True: (12, 11), False: (11, 12)}
    assert began[to_host] == TransferBegan(
        {True: 1, False: 2}[to_host], to_host, (("swa", on_device[to_host], (24, 23)),)
    )


def test_the_store_is_asked_to_copy_from_one_side_to_the_other():
    bench = HostBench(HOSTED_SWA_ONLY)
    bench.cached(LONG[:8])
    bench.tier.back_up()
    device, host = bench.memory.store.kv("swa"), bench.on_host.store.kv("host swa")
    [there] = bench.hand.begun[1]
    bench.settle()
    bench.cache.flush()
    bench.load([*LONG[:8], 1])
    [back] = bench.hand.begun[2]

    assert (there.source is device, there.target is host, there.target_pages) == (True, True, [24, 23])
    assert (back.source is host, back.target is device, back.source_pages) == (True, True, [24, 23])


def test_the_end_is_told_with_what_came_of_it():
    bench = backup(LONG[:8])
    bench.cached(OTHER[:8])
    bench.tier.back_up()
    bench.hand.fail(2)
    bench.hand.end(1)

    bench.tier.poll()

    assert bench.heard.of(TransferEnded) == [TransferEnded(2, "the copy failed"), TransferEnded(1, None)]


def test_an_acknowledgement_of_what_is_not_under_way_is_refused():
    bench = backup()
    bench.hand.acknowledge(5)

    with pytest.raises(AccountingError) as caught:
        bench.tier.poll()

    assert str(caught.value) == "transfer 5: acknowledged, but it is not in flight"


def test_nobody_is_asked_while_nothing_is_under_way():
    bench = HostBench()
    bench.hand.acknowledge(5)

    bench.tier.poll()

    assert bench.hand.acknowledged() != []


def test_without_anything_under_way_nobody_waits():
    bench = HostBench()

    bench.tier.wait()

    assert bench.hand.num_waits == 0


def test_what_is_under_way_is_waited_for():
    bench = backup()

    bench.tier.wait()

    assert bench.hand.num_waits == 1
