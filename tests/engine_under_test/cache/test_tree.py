"""The tree: insertion in each case of overlap with existing nodes, walks, splits and removal."""

import pytest

from swarden.engine_under_test.cache.locks import LockDesk
from swarden.engine_under_test.cache.tree import Insertion, RadixTree
from tests.engine_under_test.builders import FULL, PAGE, SWA, NodeSpan, node_spans, nodes_of

KEY = list(range(100, 124))
PAGES = [1, 2, 3, 4, 5, 6]
NEW_PAGES = [11, 12, 13, 14, 15, 16]

HYBRID = (FULL, SWA)
FULL_ONLY = (FULL,)
SWA_ONLY = (SWA,)


def tree_of(components=HYBRID) -> RadixTree:
    return RadixTree(components, page_size=PAGE, observer=None)


def insert(tree: RadixTree, handles, *, frontier: int = 0) -> Insertion:
    """Insert the first tokens of KEY, as many as the handles hold."""
    tokens = KEY[: len(handles) * PAGE]
    return tree.insert(tokens, handles, namespace=0, protected_len=0, absent={"swa": [range(frontier)]})


def page_lists(insertion: Insertion) -> dict[str, list[int]]:
    """The page lists of an insertion that are not empty, by name."""
    lists = {
        "adopted": insertion.adopted,
        "duplicates": insertion.duplicates[()],
        "dead duplicates": insertion.duplicates.get(("swa",), []),
        "displaced": insertion.displaced.get(("swa",), []),
        "kept": [handle for taken in insertion.taken_over for handle in taken.kept],
        "replacing": [handle for taken in insertion.taken_over for handle in taken.replacing],
    }
    return {name: list(pages) for name, pages in lists.items() if pages}


@pytest.mark.parametrize(
    ("components", "num_pages", "frontier", "nodes"),
    [
        pytest.param(HYBRID, 1, 0, [NodeSpan(0, 4, "full swa")], id="less than a window"),
        pytest.param(HYBRID, 2, 0, [NodeSpan(0, 8, "full swa")], id="exactly a window"),
        pytest.param(
            HYBRID, 5, 0, [NodeSpan(0, 12, "full swa"), NodeSpan(12, 20, "full swa")], id="a tail of exactly a window"
        ),
        pytest.param(HYBRID, 4, 8, [NodeSpan(0, 8, "full"), NodeSpan(8, 16, "full swa")], id="dead up to the tail"),
        pytest.param(
            HYBRID,
            4,
            4,
            [NodeSpan(0, 4, "full"), NodeSpan(4, 8, "full swa"), NodeSpan(8, 16, "full swa")],
            id="dead at the start",
        ),
        pytest.param(HYBRID, 4, 12, [NodeSpan(0, 12, "full"), NodeSpan(12, 16, "full swa")], id="dead into the tail"),
        pytest.param(HYBRID, 4, 16, [NodeSpan(0, 16, "full")], id="a leaf as a tombstone"),
        pytest.param(HYBRID, 4, 24, [NodeSpan(0, 16, "full")], id="dead beyond the key"),
        pytest.param(FULL_ONLY, 5, 0, [NodeSpan(0, 20, "full")], id="no window"),
        pytest.param(
            SWA_ONLY, 4, 4, [NodeSpan(0, 4, ""), NodeSpan(4, 8, "swa"), NodeSpan(8, 16, "swa")], id="swa only"
        ),
    ],
)
def test_a_new_branch_is_cut_at_the_frontier_and_before_its_tail(components, num_pages, frontier, nodes):
    tree = tree_of(components)

    insertion = insert(tree, PAGES[:num_pages], frontier=frontier)

    assert (node_spans(tree), page_lists(insertion)) == (nodes, {"adopted": PAGES[:num_pages]})


TOMBSTONE = 2  # pages of the tombstone [0, 8)


@pytest.mark.parametrize(
    ("frontier", "lists", "nodes"),
    [
        pytest.param(
            0, {"adopted": [11, 12], "displaced": [1, 2]}, [NodeSpan(0, 8, "full swa")], id="frontier at the node"
        ),
        pytest.param(
            4,
            {"adopted": [12], "displaced": [2], "dead duplicates": [11]},
            [NodeSpan(0, 4, "full"), NodeSpan(4, 8, "full swa")],
            id="frontier inside the node",
        ),
        pytest.param(8, {"dead duplicates": [11, 12]}, [NodeSpan(0, 8, "full")], id="frontier behind the node"),
    ],
)
def test_a_tombstone_recovers_from_the_frontier_on(frontier, lists, nodes):
    tree = tree_of()
    insert(tree, PAGES[:TOMBSTONE], frontier=8)

    insertion = insert(tree, NEW_PAGES[:TOMBSTONE], frontier=frontier)

    assert (page_lists(insertion), node_spans(tree)) == (lists, nodes)


@pytest.mark.parametrize(
    ("frontier", "lists"),
    [
        pytest.param(0, {"kept": [1, 2], "replacing": [11, 12]}, id="frontier at the node"),
        pytest.param(4, {"kept": [2], "replacing": [12], "dead duplicates": [11]}, id="frontier inside the node"),
        pytest.param(8, {"dead duplicates": [11, 12]}, id="frontier behind the node"),
    ],
)
def test_a_locked_tombstone_keeps_its_pages_and_takes_over_the_peers(frontier, lists):
    tree = tree_of()
    LockDesk(tree).lock(insert(tree, PAGES[:TOMBSTONE], frontier=8).node)

    insertion = insert(tree, NEW_PAGES[:TOMBSTONE], frontier=frontier)

    assert (page_lists(insertion), insertion.handles) == (lists, [1, 2])


def test_with_swa_pages_only_a_tombstone_takes_the_incoming_pages():
    tree = tree_of(SWA_ONLY)
    insert(tree, [0, 0], frontier=8)

    insertion = insert(tree, NEW_PAGES[:TOMBSTONE])

    assert (page_lists(insertion)["adopted"], node_spans(tree)) == ([11, 12], [NodeSpan(0, 8, "swa")])


@pytest.mark.parametrize(
    ("tokens", "walked"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(KEY[:3], [], id="less than a page"),
        pytest.param(KEY[:4], [4], id="a part of a node"),
        pytest.param(KEY[:12], [12], id="a node"),
        pytest.param(KEY[:15], [12], id="a node and less than a page"),
        pytest.param(KEY[:20], [12, 8], id="all nodes"),
        pytest.param([*KEY[:20], 1, 2, 3, 4], [12, 8], id="more tokens than the tree has"),
        pytest.param([*KEY[:9], 1, 2, 3], [8], id="another token inside a page"),
        pytest.param([1, *KEY[1:20]], [], id="another first token"),
    ],
)
def test_a_walk_counts_whole_pages_in_common(tokens, walked):
    tree = tree_of()
    insert(tree, PAGES[:5])

    assert [length for _, length in tree.walk(tokens, 0)] == walked


@pytest.mark.parametrize(
    ("length", "message"),
    [
        pytest.param(0, "node 2: split at 0 of 8", id="at its start"),
        pytest.param(8, "node 2: split at 8 of 8", id="at its end"),
        pytest.param(2, "node 2: split at 2, inside a page", id="inside a page"),
    ],
)
def test_a_node_is_split_only_between_its_pages(length, message):
    tree = tree_of()
    node = insert(tree, PAGES[:2]).node

    with pytest.raises(AssertionError) as caught:
        tree.split(node, length)

    assert str(caught.value).splitlines()[0] == message


@pytest.mark.parametrize(
    ("key", "frontier", "message"),
    [
        pytest.param(KEY[:7], 0, "7 tokens on 2 pages", id="less than its pages"),
        pytest.param(KEY[:8], 2, "swa span ends at 2, inside a page", id="frontier inside a page"),
    ],
)
def test_only_whole_pages_are_inserted(key, frontier, message):
    with pytest.raises(AssertionError) as caught:
        tree_of().insert(key, PAGES[:2], namespace=0, protected_len=0, absent={"swa": [range(frontier)]})

    assert str(caught.value).splitlines()[0] == message


def test_a_node_with_children_is_not_removed():
    tree = tree_of()
    insert(tree, PAGES[:5])
    parent, _ = nodes_of(tree)

    with pytest.raises(AssertionError) as caught:
        tree.remove(parent)

    assert str(caught.value).splitlines()[0] == f"node {parent.id} has 1 children"


def test_a_locked_node_is_not_removed():
    tree = tree_of()
    leaf = insert(tree, PAGES[:2]).node
    LockDesk(tree).lock(leaf)

    with pytest.raises(AssertionError) as caught:
        tree.remove(leaf)

    assert str(caught.value).splitlines()[0] == f"node {leaf.id} has locks [1, 1]"


def tails_of(tree: RadixTree) -> list[bool]:
    """Whether each node is in the window at the end of a branch."""
    [victims] = [victims for victims, one in zip(tree.candidates.victims, HYBRID, strict=True) if one is SWA]
    return [victims.is_tail(node) for node in nodes_of(tree)]


@pytest.mark.parametrize(
    ("num_pages", "tails"),
    [pytest.param(2, [True], id="a leaf"), pytest.param(5, [False, True], id="a node before the last window")],
)
def test_a_node_is_a_tail_while_a_branch_ends_within_a_window_of_it(num_pages, tails):
    tree = tree_of()
    insert(tree, PAGES[:num_pages])

    assert tails_of(tree) == tails
