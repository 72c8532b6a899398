"""The tree: what an insertion does with the pages it meets, in all the ways in which the two can overlap."""

import pytest

from engine_under_test.cache.locks import LockDesk
from engine_under_test.cache.node import Component
from engine_under_test.cache.tree import Insertion, RadixTree
from engine_under_test.events import Recovered, Split, Stored
from tests.engine_under_test.builders import PAGE, WINDOW, Heard, Stretch, locks, nodes_of, stretches

KEY = list(range(100, 124))
PAGES = [1, 2, 3, 4, 5, 6]
NEW_PAGES = [11, 12, 13, 14, 15, 16]

HYBRID = (Component("full", None), Component("swa", WINDOW))
FULL_ONLY = (Component("full", None),)
SWA_ONLY = (Component("swa", WINDOW),)


def tree_of(components=HYBRID, observer=None) -> RadixTree:
    return RadixTree(components, page_size=PAGE, observer=observer)


def insert(tree: RadixTree, handles, *, key=KEY, protected_len: int = 0, frontier: int = 0) -> Insertion:
    """Insert the first tokens of `key`, as many as the handles hold."""
    tokens = key[: len(handles) * PAGE]
    return tree.insert(tokens, handles, namespace=0, protected_len=protected_len, frontier=frontier)


def displaced_by(insertion: Insertion) -> dict[str, list[int]]:
    """What became of the incoming pages and of those that they met; only what is not empty."""
    fates = {
        "adopted": insertion.adopted,
        "duplicates": insertion.duplicates,
        "dead duplicates": insertion.dead_duplicates,
        "displaced": insertion.displaced,
        "kept": insertion.kept,
        "replacing": insertion.replacing,
    }
    return {fate: list(pages) for fate, pages in fates.items() if pages}


@pytest.mark.parametrize(
    ("components", "num_pages", "frontier", "nodes"),
    [
        pytest.param(HYBRID, 1, 0, [Stretch(0, 4, "full swa")], id="less than a window"),
        pytest.param(HYBRID, 2, 0, [Stretch(0, 8, "full swa")], id="just a window"),
        pytest.param(
            HYBRID, 5, 0, [Stretch(0, 12, "full swa"), Stretch(12, 20, "full swa")], id="a tail of just a window"
        ),
        pytest.param(HYBRID, 4, 8, [Stretch(0, 8, "full"), Stretch(8, 16, "full swa")], id="dead up to the tail"),
        pytest.param(
            HYBRID,
            4,
            4,
            [Stretch(0, 4, "full"), Stretch(4, 8, "full swa"), Stretch(8, 16, "full swa")],
            id="dead at the start",
        ),
        pytest.param(HYBRID, 4, 12, [Stretch(0, 12, "full"), Stretch(12, 16, "full swa")], id="dead into the tail"),
        pytest.param(HYBRID, 4, 16, [Stretch(0, 16, "full")], id="a leaf as a tombstone"),
        pytest.param(HYBRID, 4, 24, [Stretch(0, 16, "full")], id="dead beyond the key"),
        pytest.param(FULL_ONLY, 5, 0, [Stretch(0, 20, "full")], id="no window"),
        pytest.param(SWA_ONLY, 4, 4, [Stretch(0, 4, ""), Stretch(4, 8, "swa"), Stretch(8, 16, "swa")], id="swa only"),
    ],
)
def test_a_new_branch_is_cut_at_the_frontier_and_before_its_tail(components, num_pages, frontier, nodes):
    tree = tree_of(components)

    insertion = insert(tree, PAGES[:num_pages], frontier=frontier)

    assert (stretches(tree), displaced_by(insertion)) == (nodes, {"adopted": PAGES[:num_pages]})


def test_what_the_tree_has_already_comes_back_as_duplicates():
    tree = tree_of()
    insert(tree, PAGES[:3])

    insertion = insert(tree, NEW_PAGES[:4])

    assert displaced_by(insertion) == {"adopted": [14], "duplicates": [11, 12, 13]}


def test_a_duplicate_below_the_frontier_comes_back_as_dead():
    tree = tree_of()
    insert(tree, PAGES[:3])

    insertion = insert(tree, NEW_PAGES[:3], frontier=8)

    assert displaced_by(insertion) == {"dead duplicates": [11, 12], "duplicates": [13]}


def test_an_insertion_reports_the_pages_that_hold_its_key_now():
    tree = tree_of()
    insert(tree, PAGES[:3])

    insertion = insert(tree, NEW_PAGES[:4])

    assert (insertion.handles, insertion.node.end) == ([1, 2, 3, 14], 16)


def test_what_was_shared_before_is_not_looked_at():
    tree = tree_of()
    insert(tree, PAGES[:2])

    insertion = insert(tree, [1, 2, 13], protected_len=8)

    assert (insertion.shared, displaced_by(insertion)) == (2, {"adopted": [13]})


TOMBSTONE = 2  # pages of it, [0, 8)


@pytest.mark.parametrize(
    ("frontier", "fates", "nodes"),
    [
        pytest.param(
            0, {"adopted": [11, 12], "displaced": [1, 2]}, [Stretch(0, 8, "full swa")], id="frontier at the node"
        ),
        pytest.param(
            4,
            {"adopted": [12], "displaced": [2], "dead duplicates": [11]},
            [Stretch(0, 4, "full"), Stretch(4, 8, "full swa")],
            id="frontier inside the node",
        ),
        pytest.param(8, {"dead duplicates": [11, 12]}, [Stretch(0, 8, "full")], id="frontier behind the node"),
    ],
)
def test_a_tombstone_recovers_from_the_frontier_on(frontier, fates, nodes):
    tree = tree_of()
    insert(tree, PAGES[:TOMBSTONE], frontier=8)

    insertion = insert(tree, NEW_PAGES[:TOMBSTONE], frontier=frontier)

    assert (displaced_by(insertion), stretches(tree)) == (fates, nodes)


def test_a_tombstone_behind_the_frontier_recovers():
    tree = tree_of()
    insert(tree, PAGES[:1])
    insert(tree, PAGES[:3], frontier=12)

    insertion = insert(tree, NEW_PAGES[:3], frontier=4)

    assert displaced_by(insertion) == {"dead duplicates": [11], "displaced": [2, 3], "adopted": [12, 13]}


@pytest.mark.parametrize(
    ("frontier", "fates"),
    [
        pytest.param(0, {"kept": [1, 2], "replacing": [11, 12]}, id="frontier at the node"),
        pytest.param(4, {"kept": [2], "replacing": [12], "dead duplicates": [11]}, id="frontier inside the node"),
        pytest.param(8, {"dead duplicates": [11, 12]}, id="frontier behind the node"),
    ],
)
def test_a_locked_tombstone_keeps_its_pages_and_takes_over_the_peers(frontier, fates):
    tree = tree_of()
    LockDesk(tree).lock(insert(tree, PAGES[:TOMBSTONE], frontier=8).node)

    insertion = insert(tree, NEW_PAGES[:TOMBSTONE], frontier=frontier)

    assert (displaced_by(insertion), insertion.handles) == (fates, [1, 2])


def test_what_becomes_live_under_a_lock_is_protected_at_once():
    tree = tree_of()
    LockDesk(tree).lock(insert(tree, PAGES[:TOMBSTONE], frontier=8).node)

    insert(tree, NEW_PAGES[:TOMBSTONE])

    assert (list(tree.protected), list(tree.evictable)) == ([2, 2], [0, 0])


def test_with_swa_pages_only_a_tombstone_takes_the_incoming_pages():
    tree = tree_of(SWA_ONLY)
    insert(tree, [0, 0], frontier=8)

    insertion = insert(tree, NEW_PAGES[:TOMBSTONE])

    assert (displaced_by(insertion)["adopted"], stretches(tree)) == ([11, 12], [Stretch(0, 8, "swa")])


def test_a_recovery_is_reported():
    heard = Heard()
    tree = tree_of(observer=heard)
    node = insert(tree, PAGES[:TOMBSTONE], frontier=8).node

    insert(tree, NEW_PAGES[:TOMBSTONE])

    assert heard.of(Recovered) == [Recovered(node.id, "swa", locked=False)]


def test_a_recovery_under_a_lock_is_reported_as_such():
    heard = Heard()
    tree = tree_of(observer=heard)
    node = insert(tree, PAGES[:TOMBSTONE], frontier=8).node
    LockDesk(tree).lock(node)

    insert(tree, NEW_PAGES[:TOMBSTONE])

    assert heard.of(Recovered) == [Recovered(node.id, "swa", locked=True)]


def test_pages_are_counted_per_component():
    tree = tree_of()

    insert(tree, PAGES[:5], frontier=8)

    assert (list(tree.evictable), list(tree.protected)) == ([5, 3], [0, 0])


def test_branches_that_part_inside_a_page_share_the_pages_before_it():
    tree = tree_of()
    insert(tree, PAGES[:2])

    insert(tree, [1, 12], key=[*KEY[:6], 7, 8])

    assert stretches(tree)[0] == Stretch(0, 4, "full swa")


def test_branches_that_part_inside_the_first_page_share_nothing():
    tree = tree_of()
    insert(tree, PAGES[:1])

    insertion = insert(tree, NEW_PAGES[:1], key=[*KEY[:3], 7])

    assert (displaced_by(insertion), len(stretches(tree))) == ({"adopted": [11]}, 2)


@pytest.mark.parametrize(
    ("tokens", "walked"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(KEY[:3], [], id="less than a page"),
        pytest.param(KEY[:4], [4], id="a part of a node"),
        pytest.param(KEY[:12], [12], id="a node"),
        pytest.param(KEY[:15], [12], id="a node and less than a page"),
        pytest.param(KEY[:20], [12, 8], id="all nodes"),
        pytest.param([*KEY[:20], 1, 2, 3, 4], [12, 8], id="more than there is"),
        pytest.param([*KEY[:9], 1, 2, 3], [8], id="another token inside a page"),
        pytest.param([1, *KEY[1:20]], [], id="another first token"),
    ],
)
def test_a_walk_counts_whole_pages_in_common(tokens, walked):
    tree = tree_of()
    insert(tree, PAGES[:5])

    assert [length for _, length in tree.walk(tokens, 0)] == walked


def test_a_walk_in_another_namespace_finds_nothing():
    tree = tree_of()
    insert(tree, PAGES[:5])

    assert list(tree.walk(KEY, 1)) == []


def test_a_split_copies_the_lock_counts():
    tree = tree_of()
    node = insert(tree, PAGES[:2]).node
    LockDesk(tree).lock(node)

    tree.split(node, 4)

    assert (locks(tree, "full"), locks(tree, "swa")) == (
        {(0, 4): 1, (4, 8): 1},
        {(0, 4): 1, (4, 8): 1},
    )


def test_a_split_changes_no_count_of_pages():
    tree = tree_of()
    node = insert(tree, PAGES[:5], frontier=8).node

    tree.split(node, 4)

    assert (list(tree.evictable), list(tree.protected)) == ([5, 3], [0, 0])


def test_a_split_of_a_tombstone_leaves_two():
    tree = tree_of()
    node = insert(tree, PAGES[:2], frontier=8).node

    tree.split(node, 4)

    assert stretches(tree) == [Stretch(0, 4, "full"), Stretch(4, 8, "full")]


def test_a_split_shares_the_pages_out():
    tree = tree_of()
    node = insert(tree, PAGES[:2]).node

    upper = tree.split(node, 4)

    assert (list(upper.handles), list(node.handles), node.start) == ([1], [2], 4)


def test_a_split_is_reported():
    heard = Heard()
    tree = tree_of(observer=heard)
    node = insert(tree, PAGES[:2]).node

    upper = tree.split(node, 4)

    assert [event for event in heard.events if not isinstance(event, Stored)] == [Split(node.id, upper.id, 4)]


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
        pytest.param(KEY[:8], 2, "frontier 2 inside a page", id="frontier inside a page"),
    ],
)
def test_only_whole_pages_are_inserted(key, frontier, message):
    with pytest.raises(AssertionError) as caught:
        tree_of().insert(key, PAGES[:2], namespace=0, protected_len=0, frontier=frontier)

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


@pytest.mark.parametrize(
    ("num_pages", "tails"),
    [
        pytest.param(2, [True], id="a leaf"),
        pytest.param(5, [False, True], id="what stands before the last window"),
    ],
)
def test_a_node_is_a_tail_while_a_branch_ends_within_a_window_of_it(num_pages, tails):
    tree = tree_of()
    insert(tree, PAGES[:num_pages])

    assert [tree.is_tail(node) for node in nodes_of(tree)] == tails


def test_a_short_side_branch_makes_a_tail_of_what_it_hangs_on():
    tree = tree_of()
    insert(tree, PAGES[:5])

    insert(tree, [1, 2, 3, 14], key=[*KEY[:12], 1, 2, 3, 4])

    assert [(node.end, tree.is_tail(node)) for node in nodes_of(tree)] == [
        (12, True),
        (20, True),
        (16, True),
    ]


def test_without_a_window_nothing_is_a_tail():
    tree = tree_of(FULL_ONLY)
    insert(tree, PAGES[:2])

    assert [tree.is_tail(node) for node in nodes_of(tree)] == [False]
