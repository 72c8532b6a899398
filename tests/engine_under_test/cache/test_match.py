"""How far a prefix is cached: on the device, and with what the host has; and what is missing on the way."""

from dataclasses import replace

import pytest

from engine_under_test.cache.match import Boundary, Match, longest, num_missing, on_device, on_either
from engine_under_test.cache.node import Component, Node
from engine_under_test.cache.tree import RadixTree
from tests.engine_under_test.builders import PAGE, WINDOW, nodes_of
from tests.engine_under_test.host.bench import HOSTED_FULL_ONLY, HostBench

KEY = list(range(100, 124))
HYBRID = (Component("full", None), Component("swa", WINDOW))
FULL_ONLY = (Component("full", None),)
SWA_ONLY = (Component("swa", WINDOW),)

HERE, DEAD, THERE, DEAD_HERE, DEAD_THERE = "full+swa", "full", "host: full+swa", "full host: full+swa", "host: full"


def tree_of(*places: str, components=HYBRID) -> RadixTree:
    """A branch of nodes of a page each, live in the named pools, and with copies of those behind `host:`."""
    tree = RadixTree(components, page_size=PAGE)
    for end in range(1, len(places) + 1):
        tree.insert(KEY[: end * PAGE], list(range(1, end + 1)), namespace=0, protected_len=(end - 1) * PAGE, frontier=0)
    for node, place in zip(nodes_of(tree), places, strict=True):
        live, _, copied = place.partition("host:")
        for index, component in enumerate(components):
            tree.set_live(node, index, live=component.name in live)
            node.host.pages[index] = [node.id] if component.name in copied else []
    return tree


def path(tree: RadixTree) -> list[tuple[Node, int]]:
    return list(tree.walk(KEY, 0))


@pytest.mark.parametrize(
    ("places", "here", "with_host"),
    [
        pytest.param([HERE] * 3, 12, 12, id="all on the device"),
        pytest.param([HERE, THERE, THERE], 4, 12, id="the rest on the host"),
        pytest.param([THERE] * 3, 0, 12, id="all on the host"),
        pytest.param([HERE, DEAD, HERE], 4, 4, id="a tombstone, and too little behind it"),
        pytest.param([HERE, DEAD, HERE, HERE], 16, 16, id="a window behind a tombstone"),
        pytest.param([HERE, DEAD_HERE, HERE], 4, 12, id="a window that the host has"),
        pytest.param([HERE, "swa", HERE, HERE], 4, 4, id="a gap in what is read whole"),
        pytest.param([HERE, DEAD, THERE, THERE], 4, 16, id="a tombstone, and a window on the host"),
        pytest.param([DEAD_THERE, DEAD_THERE, THERE, THERE], 0, 16, id="the host has no more than a window"),
        pytest.param([THERE, DEAD_THERE, THERE], 0, 4, id="the host has less than a window"),
        pytest.param([DEAD, DEAD_HERE, HERE, DEAD_HERE], 0, 16, id="here and there by turns"),
    ],
)
def test_a_prefix_reaches_as_far_as_all_that_is_read_is_there(places, here, with_host):
    tree = tree_of(*places)

    assert [longest(tree, path(tree), has).length for has in (on_device, on_either)] == [here, with_host]


@pytest.mark.parametrize(
    ("components", "places", "here", "with_host"),
    [
        pytest.param(FULL_ONLY, ["full", "host: full", "host: full"], 4, 12, id="full only"),
        pytest.param(SWA_ONLY, ["swa", "host: swa", "swa"], 4, 12, id="swa only"),
        pytest.param(SWA_ONLY, ["", "", "host: swa", "swa"], 0, 16, id="swa only, behind a gap"),
        pytest.param(SWA_ONLY, ["swa", "", "swa"], 4, 4, id="swa only, too little behind a gap"),
    ],
)
def test_with_one_pool_alone_the_same_holds(components, places, here, with_host):
    tree = tree_of(*places, components=components)

    assert [longest(tree, path(tree), has).length for has in (on_device, on_either)] == [here, with_host]


def test_nothing_reaches_nowhere():
    tree = tree_of()

    assert longest(tree, path(tree), on_either) == Boundary(tree.nowhere, 0)


def test_a_prefix_may_end_inside_a_node():
    tree = RadixTree(HYBRID, page_size=PAGE)
    node = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, frontier=0).node

    assert longest(tree, tree.walk(KEY[:4], 0), on_device) == Boundary(node, 4)


@pytest.mark.parametrize(
    ("places", "length", "missing"),
    [
        pytest.param([HERE] * 4, 16, [0, 0], id="nothing"),
        pytest.param([THERE] * 4, 16, [4, 2], id="all, and of the window what is read"),
        pytest.param([HERE, HERE, THERE, THERE], 16, [2, 2], id="the end"),
        pytest.param([HERE, HERE, HERE, THERE], 16, [1, 1], id="half of the window"),
        pytest.param([HERE, HERE, DEAD_HERE, DEAD_HERE], 16, [0, 2], id="the window alone"),
        pytest.param([DEAD, DEAD, HERE, HERE], 16, [0, 0], id="tombstones before the window"),
        pytest.param([THERE] * 4, 4, [1, 1], id="of the first page"),
        pytest.param([THERE] * 4, 0, [0, 0], id="of nothing"),
    ],
)
def test_missing_is_what_a_reader_needs_and_the_device_has_not(places, length, missing):
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
def test_of_a_node_of_many_pages_only_those_that_are_read_are_missing(length, missing):
    tree = RadixTree(HYBRID, page_size=PAGE)
    node = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, frontier=0).node
    upper = tree.insert(KEY[:16], [1, 2, 3, 4], namespace=0, protected_len=8, frontier=0).node
    for one in (node, upper):
        for component in range(2):
            tree.set_live(one, component, live=False)
    last, _ = list(tree.walk(KEY[:length], 0))[-1]

    assert num_missing(tree, Boundary(last, length)) == missing


def test_a_match_ends_with_what_may_come_back():
    tree = tree_of(HERE, THERE)
    first, second = nodes_of(tree)

    assert Match(first, 4, [1], Boundary(second, 8)).farthest == Boundary(second, 8)


def test_a_match_that_reaches_no_farther_ends_where_it_ends():
    tree = tree_of(HERE)
    [node] = nodes_of(tree)

    assert Match(node, 4, [1]).farthest == Boundary(node, 4)


@pytest.mark.parametrize(
    ("tokens", "length", "reach"),
    [
        pytest.param([*KEY[:16], 1], 8, 16, id="all of it"),
        pytest.param(KEY[:16], 8, 12, id="a token must be computed"),
        pytest.param([*KEY[:12], 1, 2, 3, 4, 5], 8, 12, id="what is shared"),
        pytest.param([*KEY[:8], 1], 8, None, id="no more than the device has"),
    ],
)
def test_the_cache_knows_how_far_a_load_could_reach(tokens, length, reach):
    bench = HostBench(HOSTED_FULL_ONLY)
    bench.demoted(KEY[:16])
    bench.load([*KEY[:8], 1])
    bench.settle()

    match = bench.match(tokens)

    assert (match.length, match.reach and match.reach.length) == (length, reach)


def test_to_look_for_what_the_host_has_changes_nothing():
    bench = HostBench()
    bench.demoted(KEY[:16])
    before = [(node.start, node.end, node.last_used) for node in bench.nodes()]

    bench.match(KEY[:13])

    assert [(node.start, node.end, node.last_used) for node in bench.nodes()] == before


def test_what_a_request_has_is_locked_beside_what_it_loads():
    """The window at the end of what it could reach, and the one at the end of what is on the device: two pages each."""
    bench = HostBench()
    bench.cached(KEY)
    here = bench.cache.match(KEY[:13], 0)

    asked = replace(here, reach=bench.cache.match([*KEY, 1], 0).farthest)

    assert (bench.cache.pages_to_lock(here), bench.cache.pages_to_lock(asked)) == (
        {"full": 3, "swa": 2},
        {"full": 6, "swa": 4},
    )
