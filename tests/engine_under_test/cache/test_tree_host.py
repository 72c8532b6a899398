"""The tree beside a host: nodes that go on there, that lose their copy, and that come back."""

import pytest

from engine_under_test.cache.locks import LockDesk
from engine_under_test.cache.node import Component, Node
from engine_under_test.cache.tree import Insertion, RadixTree
from tests.engine_under_test.builders import PAGE, WINDOW, Stretch, nodes_of, stretches
from tests.engine_under_test.host.bench import copies

KEY = list(range(100, 124))
PAGES, NEW_PAGES, ON_HOST = [1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 25, 26]

HYBRID = (Component("full", None), Component("swa", WINDOW))
FULL_ONLY = (Component("full", None),)
SWA_ONLY = (Component("swa", WINDOW),)


def insert(tree: RadixTree, handles, *, protected_len: int = 0, frontier: int = 0) -> Insertion:
    """Insert the first tokens of KEY, as many as the handles hold."""
    tokens = KEY[: len(handles) * PAGE]
    return tree.insert(tokens, handles, namespace=0, protected_len=protected_len, frontier=frontier)


def copy(node: Node, *components: int) -> None:
    """Give the host a copy of a node, of all components or of some."""
    for component in components or range(len(node.live)):
        node.host.pages[component] = ON_HOST[node.start // PAGE : node.end // PAGE]


def tree_with_copies(*num_pages: int, components=HYBRID) -> RadixTree:
    """A branch of nodes that end with so many pages, each with a copy on the host."""
    tree = RadixTree(components, page_size=PAGE)
    shared = 0
    for count in num_pages:
        insert(tree, PAGES[:count], protected_len=shared)
        shared = count * PAGE
    for node in nodes_of(tree):
        copy(node)
    return tree


def demoted_tree(*num_pages: int, components=HYBRID) -> RadixTree:
    """The same, all of it on the host alone."""
    tree = tree_with_copies(*num_pages, components=components)
    for node in reversed(list(nodes_of(tree))):
        tree.demote(node)
        node.handles = [0] * node.num_pages
    return tree


# --- demote


def test_a_node_that_is_demoted_stays_with_nothing_on_the_device():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)

    tree.demote(node)

    assert (stretches(tree), copies(tree), tree.evictable) == ([Stretch(0, 8, "")], [Stretch(0, 8, "full swa")], [0, 0])


def test_who_stands_above_a_demoted_node_is_the_next_to_go():
    tree = tree_with_copies(2, 4)
    upper, lower = nodes_of(tree)

    tree.demote(lower)

    assert (upper.is_leaf, upper.is_device_leaf, tree.candidates.leaves.pop()) == (False, True, upper)


def test_only_what_the_host_has_is_demoted():
    tree = RadixTree(HYBRID, page_size=PAGE)
    node = insert(tree, PAGES[:2]).node

    with pytest.raises(AssertionError) as caught:
        tree.demote(node)

    assert str(caught.value).splitlines()[0] == f"node {node.id} has no copy on the host"


def test_what_is_locked_is_not_demoted():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    LockDesk(tree).lock(node)

    with pytest.raises(AssertionError) as caught:
        tree.demote(node)

    assert str(caught.value).splitlines()[0] == f"node {node.id} has locks [1, 1]"


def test_a_tombstone_is_demoted_too():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    tree.set_live(node, 1, live=False)

    tree.demote(node)

    assert tree.evictable == [0, 0]


# --- the copies


@pytest.mark.parametrize(
    ("component", "dropped", "left"),
    [
        pytest.param(0, [[21, 22], [21, 22]], "", id="all"),
        pytest.param(1, [[], [21, 22]], "full", id="the window alone"),
    ],
)
def test_a_copy_goes_whole_or_in_the_window(component, dropped, left):
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)

    assert tree.drop_copy(node, component) == dropped
    assert (copies(tree), stretches(tree)) == ([Stretch(0, 8, left)], [Stretch(0, 8, "full swa")])


def test_what_was_nowhere_but_on_the_host_leaves_the_tree():
    tree = demoted_tree(2)
    [node] = nodes_of(tree)

    tree.drop_copy(node, 0)

    assert (list(nodes_of(tree)), tree.roots) == ([], {})


def test_without_its_window_a_copy_stays():
    tree = demoted_tree(2)
    [node] = nodes_of(tree)

    tree.drop_copy(node, 1)

    assert copies(tree) == [Stretch(0, 8, "full")]


def test_who_stands_above_stays_with_its_own_copy_and_is_the_next_to_lose_it():
    tree = demoted_tree(2, 4)
    upper, lower = nodes_of(tree)

    tree.drop_copy(lower, 0)

    assert (list(nodes_of(tree)), tree.candidates.copies.pop()) == ([upper], upper)


def test_what_stood_only_for_those_below_goes_with_them():
    """In a window alone a node may have nothing at all, while somebody goes on from it."""
    tree = demoted_tree(2, 4, components=SWA_ONLY)
    upper, lower = nodes_of(tree)
    tree.drop_copy(upper, 0)
    between = copies(tree)

    tree.drop_copy(lower, 0)

    assert (between, list(nodes_of(tree))) == ([Stretch(0, 8, ""), Stretch(8, 16, "swa")], [])


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(lambda node, _: node.host.pins.__setitem__(0, 1), id="a load reads it"),
        pytest.param(lambda node, _: node.host.pins.__setitem__(1, 1), id="a load reads its window"),
        pytest.param(lambda _, tree: LockDesk(tree).lock(list(nodes_of(tree))[-1]), id="somebody needs it to stay"),
    ],
)
def test_a_copy_that_is_needed_is_no_candidate(state):
    tree = demoted_tree(2)
    [node] = nodes_of(tree)

    state(node, tree)
    tree.candidates.offer(node)

    assert tree.candidates.copies.pop() is None


def test_a_copy_of_what_somebody_reads_on_the_device_is_a_candidate():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    LockDesk(tree).lock(node)

    tree.candidates.offer(node)

    assert (tree.candidates.copies.pop(), tree.candidates.copied_windows.pop()) == (node, node)


def test_a_window_that_a_load_reads_is_no_candidate():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    node.host.pins[1] = 1

    tree.candidates.offer(node)

    assert tree.candidates.copied_windows.pop() is None


def test_a_split_shares_the_copy_out():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    node.host.pins, node.host.is_filling, node.host.num_hits = [1, 0], True, 3

    upper = tree.split(node, 4)

    assert (upper.host.pages, node.host.pages) == ([[21], [21]], [[22], [22]])
    assert [(one.host.pins, one.host.is_filling, one.host.num_hits) for one in (upper, node)] == [
        ([1, 0], True, 3),
        ([1, 0], True, 3),
    ]


# --- coming back


@pytest.mark.parametrize(
    ("frontier", "nodes"),
    [
        pytest.param(0, [Stretch(0, 8, ""), Stretch(8, 16, "full swa")], id="frontier before the node"),
        pytest.param(8, [Stretch(0, 8, ""), Stretch(8, 16, "full swa")], id="frontier at the node"),
        pytest.param(
            12, [Stretch(0, 8, ""), Stretch(8, 12, "full"), Stretch(12, 16, "full swa")], id="frontier inside the node"
        ),
        pytest.param(16, [Stretch(0, 8, ""), Stretch(8, 16, "full")], id="frontier at the end of the node"),
        pytest.param(20, [Stretch(0, 8, ""), Stretch(8, 16, "full")], id="frontier behind the node"),
    ],
)
def test_what_is_on_the_host_alone_takes_the_incoming_pages_in(frontier, nodes):
    tree = demoted_tree(2, 4)

    insertion = insert(tree, NEW_PAGES[:4], protected_len=8, frontier=frontier)

    assert (insertion.adopted, insertion.duplicates, insertion.dead_duplicates, stretches(tree)) == (
        [13, 14],
        [],
        [],
        nodes,
    )


def test_what_comes_back_has_the_handles_of_the_incoming_pages():
    tree = demoted_tree(2, 4)

    insertion = insert(tree, NEW_PAGES[:4], frontier=12)

    assert (insertion.handles, [node.handles for node in nodes_of(tree)]) == ([11, 12, 13, 14], [[11, 12], [13], [14]])


def test_what_comes_back_keeps_its_copy():
    tree = demoted_tree(4)

    insert(tree, NEW_PAGES[:4], frontier=12)

    assert copies(tree) == [Stretch(0, 8, "full swa"), Stretch(8, 12, "full swa"), Stretch(12, 16, "full swa")]


def test_what_comes_back_is_counted():
    tree = demoted_tree(4)

    insert(tree, NEW_PAGES[:4], frontier=12)

    assert (tree.evictable, tree.protected) == ([4, 1], [0, 0])


def test_what_comes_back_under_a_lock_is_protected_at_once():
    tree = demoted_tree(2)
    LockDesk(tree).lock(next(iter(nodes_of(tree))))

    insert(tree, NEW_PAGES[:2])

    assert (tree.evictable, tree.protected) == ([0, 0], [2, 2])


def test_a_shorter_key_brings_back_no_more_than_it_has():
    tree = demoted_tree(2)

    insert(tree, NEW_PAGES[:1])

    assert (stretches(tree), copies(tree)) == (
        [Stretch(0, 4, "full swa"), Stretch(4, 8, "")],
        [Stretch(0, 4, "full swa"), Stretch(4, 8, "full swa")],
    )


def test_without_a_window_all_comes_back():
    tree = demoted_tree(2, components=FULL_ONLY)

    insertion = insert(tree, NEW_PAGES[:2])

    assert (insertion.adopted, stretches(tree)) == ([11, 12], [Stretch(0, 8, "full")])


def test_in_a_window_alone_it_recovers():
    tree = demoted_tree(2, components=SWA_ONLY)

    insertion = insert(tree, NEW_PAGES[:2])

    assert (insertion.adopted, insertion.displaced, stretches(tree)) == ([11, 12], [0, 0], [Stretch(0, 8, "swa")])
