"""How far a prefix is cached, on the device and with the copies on the host, and the pages that a load must bring."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.cache.match import Boundary, longest, num_missing, on_device, on_either
from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.tree import RadixTree
from tests.engine_under_test.builders import FULL, PAGE, SWA, nodes_of
from tests.engine_under_test.host.bench import HOSTED_FULL_ONLY, HostBench

KEY = list(range(100, 124))
HYBRID = (FULL, SWA)
FULL_ONLY = (FULL,)
SWA_ONLY = (SWA,)

LIVE, TOMBSTONE, ON_HOST, TOMBSTONE_WITH_COPY, TOMBSTONE_ON_HOST = (
    "full+swa",
    "full",
    "host: full+swa",
    "full host: full+swa",
    "host: full",
)


def tree_of(*places: str, components=HYBRID) -> RadixTree:
    """A branch of nodes of one page each: live in the named pools, with copies in the pools after `host:`."""
    tree = RadixTree(components, page_size=PAGE)
    for end in range(1, len(places) + 1):
        handles, shared_len = list(range(1, end + 1)), (end - 1) * PAGE
        tree.insert(KEY[: end * PAGE], handles, namespace=0, protected_len=shared_len, absent={})
    for node, place in zip(nodes_of(tree), places, strict=True):
        live, _, copied = place.partition("host:")
        for index, component in enumerate(components):
            tree.set_live(node, index, live=component.name in live)
            node.host.pages[index] = [node.id] if component.name in copied else []
    return tree


def path(tree: RadixTree) -> list[tuple[Node, int]]:
    return list(tree.walk(KEY, 0))


@pytest.mark.parametrize(
    ("components", "places", "device_len", "with_host_len"),
    [
        pytest.param(HYBRID, [LIVE, ON_HOST, ON_HOST], 4, 12, id="the rest on the host"),
        pytest.param(HYBRID, [LIVE, TOMBSTONE, LIVE], 4, 4, id="less than a window behind a tombstone"),
        pytest.param(HYBRID, [LIVE, TOMBSTONE, LIVE, LIVE], 16, 16, id="a window behind a tombstone"),
        pytest.param(HYBRID, [LIVE, TOMBSTONE_WITH_COPY, LIVE], 4, 12, id="a tombstone with a copy"),
        pytest.param(HYBRID, [LIVE, "swa", LIVE, LIVE], 4, 4, id="a node without full pages"),
        pytest.param(HYBRID, [LIVE, TOMBSTONE, ON_HOST, ON_HOST], 4, 16, id="a window on the host behind a tombstone"),
        pytest.param(HYBRID, [ON_HOST, TOMBSTONE_ON_HOST, ON_HOST], 0, 4, id="less than a window of swa copies"),
        pytest.param(
            HYBRID,
            [TOMBSTONE, TOMBSTONE_WITH_COPY, LIVE, TOMBSTONE_WITH_COPY],
            0,
            16,
            id="a window on device and host by turns",
        ),
        pytest.param(FULL_ONLY, ["full", "host: full", "host: full"], 4, 12, id="full only"),
        pytest.param(SWA_ONLY, ["", "", "host: swa", "swa"], 0, 16, id="swa only, a window behind a gap"),
        pytest.param(SWA_ONLY, ["swa", "", "swa"], 4, 4, id="swa only, less than a window behind a gap"),
    ],
)
def test_longest_prefix_has_all_pages_that_a_reader_needs(components, places, device_len, with_host_len):
    tree = tree_of(*places, components=components)

    assert [longest(tree, path(tree), has).length for has in (on_device, on_either)] == [device_len, with_host_len]


def test_a_prefix_may_end_inside_a_node():
    tree = RadixTree(HYBRID, page_size=PAGE)
    node = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, absent={}).node

    assert longest(tree, tree.walk(KEY[:4], 0), on_device) == Boundary(node, 4)


@pytest.mark.parametrize(
    ("places", "length", "missing"),
    [
        pytest.param([LIVE] * 4, 16, [0, 0], id="nothing"),
        pytest.param([ON_HOST] * 4, 16, [4, 2], id="all full pages and one window"),
        pytest.param([LIVE, LIVE, ON_HOST, ON_HOST], 16, [2, 2], id="the last two pages"),
        pytest.param([LIVE, LIVE, LIVE, ON_HOST], 16, [1, 1], id="half of the window"),
        pytest.param([LIVE, LIVE, TOMBSTONE_WITH_COPY, TOMBSTONE_WITH_COPY], 16, [0, 2], id="only the window"),
        pytest.param([TOMBSTONE, TOMBSTONE, LIVE, LIVE], 16, [0, 0], id="tombstones before the window"),
        pytest.param([ON_HOST] * 4, 4, [1, 1], id="a prefix of one page"),
        pytest.param([ON_HOST] * 4, 0, [0, 0], id="an empty prefix"),
    ],
)
def test_missing_pages_are_needed_and_not_on_the_device(places, length, missing):
    tree = tree_of(*places)
    [node] = [node for node in [tree.nowhere, *nodes_of(tree)] if node.end == length]

    assert num_missing(tree, Boundary(node, length)) == missing


@pytest.mark.parametrize(
    ("length", "missing"),
    [
        pytest.param(4, [1, 1], id="inside the node"),
        pytest.param(12, [3, 2], id="where the window begins inside the node"),
    ],
)
def test_only_needed_pages_of_a_long_node_are_missing(length, missing):
    tree = RadixTree(HYBRID, page_size=PAGE)
    node = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, absent={}).node
    upper = tree.insert(KEY[:16], [1, 2, 3, 4], namespace=0, protected_len=8, absent={}).node
    for one in (node, upper):
        for component in range(2):
            tree.set_live(one, component, live=False)
    last, _ = list(tree.walk(KEY[:length], 0))[-1]

    assert num_missing(tree, Boundary(last, length)) == missing


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
