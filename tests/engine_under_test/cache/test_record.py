"""The private handles of a record: whole pages, split at the frontiers."""

import pytest

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.components import FullAttention, SlidingWindow
from swarden.engine_under_test.units import request_owner
from tests.engine_under_test.builders import CacheBench


@pytest.mark.parametrize(
    ("protected_len", "allocated_len", "frontier", "dead", "live"),
    [
        pytest.param(8, 21, 12, [3], [4, 5, 6], id="frontier in the private pages"),
        pytest.param(8, 21, 4, [], [3, 4, 5, 6], id="frontier in the shared pages"),
        pytest.param(8, 21, 0, [], [3, 4, 5, 6], id="no slide"),
        pytest.param(8, 16, 16, [3, 4], [], id="frontier at the end"),
        pytest.param(8, 8, 0, [], [], id="no private page"),
        pytest.param(0, 5, 0, [], [1, 2], id="no shared page"),
    ],
)
def test_private_pages_are_dead_below_the_frontier(protected_len, allocated_len, frontier, dead, live):
    bench = CacheBench()
    receipt = bench.custody.record(bench.start([1])).receipt
    handles = [1, 2, 3, 4, 5, 6][: -(-allocated_len // 4)]
    lens = (protected_len, allocated_len, allocated_len, allocated_len)
    record = KVRecord(request_owner(9), 1, receipt, *lens, {"swa": frontier}, handles=handles)

    parts = [part for part in record.private_parts(4) if part[0]]
    assert parts == [part for part in [(dead, ["swa"]), (live, [])] if part[0]]


@pytest.mark.parametrize(
    ("length", "is_there"),
    [
        pytest.param(20, True, id="both windows behind their frontiers"),
        pytest.param(17, False, id="the wide window before its frontier"),
        pytest.param(14, False, id="both windows before their frontiers"),
    ],
)
def test_a_record_continues_only_where_it_has_the_pages_of_every_window(length, is_there):
    bench = CacheBench()
    receipt = bench.custody.record(bench.start([1])).receipt
    frontiers = {"wide": 12, "narrow": 16}
    record = KVRecord(request_owner(9), 1, receipt, 0, 24, 24, 24, frontiers, handles=[1, 2, 3, 4, 5, 6])

    pools = (FullAttention("full", 8, 4), SlidingWindow("wide", 8, 4, 7), SlidingWindow("narrow", 8, 4, 3))
    assert record.can_continue(length, pools) is is_there
    assert [(len(handles), freed) for handles, freed in record.private_parts(4)] == [
        (3, ["wide", "narrow"]),
        (1, ["narrow"]),
        (2, []),
    ]
