"""How far a prefix is cached, on the device and with the copies on the host, and the pages that a load must bring."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.tree import RadixTree
from tests.engine_under_test.host.bench import HOSTED_FULL_ONLY, HostBench

KEY = list(range(100, 124))


def path(tree: RadixTree) -> list[tuple[Node, int]]:
    return list(tree.walk(KEY, 0))


@pytest.mark.parametrize(
    ("tokens", "length", "reach"),
    [
        pytest.param([*KEY[:16], 1], 8, 16, id="all of it"),
        pytest.param(KEY[:16], 8, 12, id="a token must be computed"),
        pytest.param([*KEY[:12], 1, 2, 3, 4, 5], 8, 12, id="the shared prefix"),
        pytest.param([*KEY[:8], 1], 8, None, id="only tokens on the device"),
    ],
)
def test_match_reaches_as_far_as_a_load_could(tokens, length, reach):
    bench = HostBench(HOSTED_FULL_ONLY)
    bench.insert_on_host(KEY[:16])
    bench.load([*KEY[:8], 1])
    bench.settle()

    match = bench.match(tokens)

    assert (match.length, match.reach and match.reach.length) == (length, reach)


def test_match_with_host_copies_changes_nothing():
    bench = HostBench()
    bench.insert_on_host(KEY[:16])
    before = [(node.start, node.end, node.last_used) for node in bench.nodes()]

    bench.match(KEY[:13])

    assert [(node.start, node.end, node.last_used) for node in bench.nodes()] == before


def test_pages_to_lock_include_the_match_and_its_reach():
    """Two windows of two pages each: at the end of the reach, and at the end of the match on the device."""
    bench = HostBench()
    bench.insert(KEY)
    here = bench.cache.match(KEY[:13], 0)

    asked = replace(here, reach=bench.cache.match([*KEY, 1], 0).farthest)

    assert (bench.cache.pages_to_lock(here), bench.cache.pages_to_lock(asked)) == (
        {"full": 3, "swa": 2},
        {"full": 6, "swa": 4},
    )
