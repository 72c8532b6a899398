"""CopyJobs: their parts by node, their events, and the check of acknowledgements."""

import pytest

from engine_under_test.errors import AccountingError
from engine_under_test.events import CopyBegan, CopyEnded
from engine_under_test.host.copy_jobs import Move, Part, copy_job_owner, page_indices
from engine_under_test.units import Owner
from tests.engine_under_test.host.bench import HOSTED_SWA_ONLY, HostBench

LONG, OTHER = list(range(100, 120)), list(range(200, 220))


def in_flight(bench: HostBench):
    """The only job in flight."""
    [job] = bench.tier.under_way
    return job


def backup(tokens=LONG) -> HostBench:
    bench = HostBench()
    bench.insert(tokens)
    bench.tier.back_up()
    return bench


@pytest.mark.parametrize(
    ("to_host", "owner"), [(True, Owner("backup", 3)), (False, Owner("load", 3))], ids=["backup", "load"]
)
def test_owner_of_a_transfer_has_its_kind_and_id(to_host, owner):
    assert copy_job_owner(3, to_host=to_host) == owner


def test_backup_owns_its_pages():
    assert in_flight(backup()).owner == Owner("backup", 1)


def test_page_indices_count_from_the_root():
    bench = HostBench()
    bench.insert(LONG)

    assert [page_indices(node, 4) for node in bench.nodes()] == [range(3), range(3, 5)]


def test_part_lists_its_pages_on_device_and_host():
    bench = HostBench()
    bench.insert(LONG[:8])
    part = Part(bench.nodes()[0], 0, [Move(3, 7), Move(4, 8)])

    assert (part.on_device, part.on_host) == ([3, 4], [7, 8])


def test_parts_are_ordered_from_the_root_and_by_pool():
    bench = backup()

    parts = list(in_flight(bench).parts(4))

    upper, leaf = bench.nodes()
    assert [(part.node, part.component, part.on_device) for part in parts] == [
        (upper, 0, [16, 15, 14]),
        (upper, 1, [12, 11, 10]),
        (leaf, 0, [13, 12]),
        (leaf, 1, [9, 8]),
    ]


def test_split_divides_a_part():
    bench = backup(LONG[:8])
    upper = bench.tree.split(bench.nodes()[0], 4)

    parts = list(in_flight(bench).parts(4))

    lower = bench.nodes()[1]
    assert [(part.node, part.component, part.on_host) for part in parts] == [
        (upper, 0, [32]),
        (upper, 1, [24]),
        (lower, 0, [31]),
        (lower, 1, [23]),
    ]


def test_parts_are_only_the_moved_pages():
    bench = HostBench()
    bench.insert_on_host(LONG)

    bench.load([*LONG, 1])

    assert [(part.node.start, part.component) for part in in_flight(bench).parts(4)] == [(0, 0), (12, 0), (12, 1)]


@pytest.mark.parametrize("to_host", [True, False], ids=["backup", "load"])
def test_begin_is_reported_with_the_pages_on_both_sides(to_host):
    bench = HostBench(HOSTED_SWA_ONLY)
    bench.insert_on_host(LONG[:8])
    bench.load([*LONG[:8], 1])

    began = {event.to_host: event for event in bench.log.of(CopyBegan)}

    on_device = {True: (12, 11), False: (11, 12)}
    assert began[to_host] == CopyBegan({True: 1, False: 2}[to_host], to_host, (("swa", on_device[to_host], (24, 23)),))


def test_store_gets_source_and_target_of_each_copy():
    bench = HostBench(HOSTED_SWA_ONLY)
    bench.insert(LONG[:8])
    bench.tier.back_up()
    device, host = bench.memory.store.kv("swa"), bench.on_host.store.kv("host swa")
    [there] = bench.store.begun[1]
    bench.settle()
    bench.cache.flush()
    bench.load([*LONG[:8], 1])
    [back] = bench.store.begun[2]

    assert (there.source is device, there.target is host, there.target_pages) == (True, True, [24, 23])
    assert (back.source is host, back.target is device, back.source_pages) == (True, True, [24, 23])


def test_end_is_reported_with_its_failure():
    bench = backup(LONG[:8])
    bench.insert(OTHER[:8])
    bench.tier.back_up()
    bench.store.fail(2)
    bench.store.end(1)

    bench.tier.poll()

    assert bench.log.of(CopyEnded) == [CopyEnded(2, "the copy failed"), CopyEnded(1, None)]


def test_acknowledgement_of_an_unknown_copy_job_raises():
    bench = backup()
    bench.store.acknowledge(5)

    with pytest.raises(AccountingError) as caught:
        bench.tier.poll()

    assert str(caught.value) == "copy job 5: acknowledged, but it is not in flight"


def test_store_is_not_polled_without_a_transfer_in_flight():
    bench = HostBench()
    bench.store.acknowledge(5)

    bench.tier.poll()

    assert bench.store.acknowledged() != []


def test_wait_without_a_transfer_in_flight_does_not_call_the_store():
    bench = HostBench()

    bench.tier.wait()

    assert bench.store.num_waits == 0


def test_wait_with_a_transfer_in_flight_calls_the_store():
    bench = backup()

    bench.tier.wait()

    assert bench.store.num_waits == 1
