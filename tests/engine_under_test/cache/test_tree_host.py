"""The tree with a host tier: nodes that are demoted, that lose their copy, and that are restored."""

import pytest

from engine_under_test.cache.locks import LockDesk
from engine_under_test.cache.node import Component, Node
from engine_under_test.cache.tree import Insertion, RadixTree
from tests.engine_under_test.builders import PAGE, WINDOW, NodeSpan, node_spans, nodes_of
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
    """A branch of nodes with copies on the host; the nodes end after these numbers of pages."""
    tree = RadixTree(components, page_size=PAGE)
    shared = 0
    for count in num_pages:
        insert(tree, PAGES[:count], protected_len=shared)
        shared = count * PAGE
    for node in nodes_of(tree):
        copy(node)
    return tree


def demoted_tree(*num_pages: int, components=HYBRID) -> RadixTree:
    """The same branch, on the host only."""
    tree = tree_with_copies(*num_pages, components=components)
    for node in reversed(list(nodes_of(tree))):
        tree.demote(node)
        node.handles = [0] * node.num_pages
    return tree


# --- demote


def test_demoted_node_stays_without_device_pages():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)

    tree.demote(node)

    assert (node_spans(tree), copies(tree), tree.evictable) == (
        [NodeSpan(0, 8, "")],
        [NodeSpan(0, 8, "full swa")],
        [0, 0],
    )


def test_parent_of_a_demoted_node_is_the_next_candidate():
    tree = tree_with_copies(2, 4)
    upper, lower = nodes_of(tree)

    tree.demote(lower)

    assert (upper.is_leaf, upper.is_device_leaf, tree.candidates.leaves.pop()) == (False, True, upper)


def test_demotion_of_a_node_without_a_copy_raises():
    tree = RadixTree(HYBRID, page_size=PAGE)
    node = insert(tree, PAGES[:2]).node

    with pytest.raises(AssertionError) as caught:
        tree.demote(node)

    assert str(caught.value).splitlines()[0] == f"node {node.id} has no copy on the host"


def test_demotion_of_a_locked_node_raises():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    LockDesk(tree).lock(node)

    with pytest.raises(AssertionError) as caught:
        tree.demote(node)

    assert str(caught.value).splitlines()[0] == f"node {node.id} has locks [1, 1]"


def test_demoted_tombstone_has_no_evictable_pages():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    tree.set_live(node, 1, live=False)

    tree.demote(node)

    assert tree.evictable == [0, 0]


# --- copies


@pytest.mark.parametrize(
    ("component", "dropped", "left"),
    [
        pytest.param(0, [[21, 22], [21, 22]], "", id="all"),
        pytest.param(1, [[], [21, 22]], "full", id="only the window"),
    ],
)
def test_copy_is_dropped_whole_or_only_in_the_window(component, dropped, left):
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)

    assert tree.drop_copy(node, component) == dropped
    assert (copies(tree), node_spans(tree)) == ([NodeSpan(0, 8, left)], [NodeSpan(0, 8, "full swa")])


def test_node_without_pages_and_copy_is_removed():
    tree = demoted_tree(2)
    [node] = nodes_of(tree)

    tree.drop_copy(node, 0)

    assert (list(nodes_of(tree)), tree.roots) == ([], {})


def test_copy_without_its_window_stays():
    tree = demoted_tree(2)
    [node] = nodes_of(tree)

    tree.drop_copy(node, 1)

    assert copies(tree) == [NodeSpan(0, 8, "full")]


def test_parent_of_a_dropped_copy_is_the_next_candidate():
    tree = demoted_tree(2, 4)
    upper, lower = nodes_of(tree)

    tree.drop_copy(lower, 0)

    assert (list(nodes_of(tree)), tree.candidates.copies.pop()) == ([upper], upper)


def test_empty_parent_is_removed_with_its_last_child():
    """With swa pages only, a node may have neither pages nor a copy while its child has a copy."""
    tree = demoted_tree(2, 4, components=SWA_ONLY)
    upper, lower = nodes_of(tree)
    tree.drop_copy(upper, 0)
    between = copies(tree)

    tree.drop_copy(lower, 0)

    assert (between, list(nodes_of(tree))) == ([NodeSpan(0, 8, ""), NodeSpan(8, 16, "swa")], [])


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(lambda node, _: node.host.pins.__setitem__(0, 1), id="a load reads it"),
        pytest.param(lambda node, _: node.host.pins.__setitem__(1, 1), id="a load reads its window"),
        pytest.param(lambda _, tree: LockDesk(tree).lock(list(nodes_of(tree))[-1]), id="a receipt covers it"),
    ],
)
def test_a_copy_that_is_needed_is_no_candidate(state):
    tree = demoted_tree(2)
    [node] = nodes_of(tree)

    state(node, tree)
    tree.candidates.offer(node)

    assert tree.candidates.copies.pop() is None


def test_copy_of_a_locked_live_node_is_a_candidate():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    LockDesk(tree).lock(node)

    tree.candidates.offer(node)

    assert (tree.candidates.copies.pop(), tree.candidates.copied_windows.pop()) == (node, node)


def test_copied_window_that_a_load_reads_is_no_candidate():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    node.host.pins[1] = 1

    tree.candidates.offer(node)

    assert tree.candidates.copied_windows.pop() is None


def test_split_divides_the_copy():
    tree = tree_with_copies(2)
    [node] = nodes_of(tree)
    node.host.pins, node.host.is_filling, node.host.num_hits = [1, 0], True, 3

    upper = tree.split(node, 4)

    assert (upper.host.pages, node.host.pages) == ([[21], [21]], [[22], [22]])
    assert [(one.host.pins, one.host.is_filling, one.host.num_hits) for one in (upper, node)] == [
        ([1, 0], True, 3),
        ([1, 0], True, 3),
    ]


# --- restore


@pytest.mark.parametrize(
    ("frontier", "nodes"),
    [
        pytest.param(0, [NodeSpan(0, 8, ""), NodeSpan(8, 16, "full swa")], id="frontier before the node"),
        pytest.param(8, [NodeSpan(0, 8, ""), NodeSpan(8, 16, "full swa")], id="frontier at the node"),
        pytest.param(
            12,
            [NodeSpan(0, 8, ""), NodeSpan(8, 12, "full"), NodeSpan(12, 16, "full swa")],
            id="frontier inside the node",
        ),
        pytest.param(16, [NodeSpan(0, 8, ""), NodeSpan(8, 16, "full")], id="frontier at the end of the node"),
        pytest.param(20, [NodeSpan(0, 8, ""), NodeSpan(8, 16, "full")], id="frontier behind the node"),
    ],
)
def test_node_on_the_host_only_adopts_incoming_pages(frontier, nodes):
    tree = demoted_tree(2, 4)

    insertion = insert(tree, NEW_PAGES[:4], protected_len=8, frontier=frontier)

    assert (insertion.adopted, insertion.duplicates, insertion.dead_duplicates, node_spans(tree)) == (
        [13, 14],
        [],
        [],
        nodes,
    )


def test_restored_node_has_the_handles_of_the_incoming_pages():
    tree = demoted_tree(2, 4)

    insertion = insert(tree, NEW_PAGES[:4], frontier=12)

    assert (insertion.handles, [node.handles for node in nodes_of(tree)]) == ([11, 12, 13, 14], [[11, 12], [13], [14]])


def test_restored_node_keeps_its_copy():
    tree = demoted_tree(4)

    insert(tree, NEW_PAGES[:4], frontier=12)

    assert copies(tree) == [NodeSpan(0, 8, "full swa"), NodeSpan(8, 12, "full swa"), NodeSpan(12, 16, "full swa")]


def test_pages_of_a_restored_node_are_evictable():
    tree = demoted_tree(4)

    insert(tree, NEW_PAGES[:4], frontier=12)

    assert (tree.evictable, tree.protected) == ([4, 1], [0, 0])


def test_pages_of_a_restored_locked_node_are_protected():
    tree = demoted_tree(2)
    LockDesk(tree).lock(next(iter(nodes_of(tree))))

    insert(tree, NEW_PAGES[:2])

    assert (tree.evictable, tree.protected) == ([0, 0], [2, 2])


def test_shorter_key_restores_only_its_part_of_a_node():
    tree = demoted_tree(2)

    insert(tree, NEW_PAGES[:1])

    assert (node_spans(tree), copies(tree)) == (
        [NodeSpan(0, 4, "full swa"), NodeSpan(4, 8, "")],
        [NodeSpan(0, 4, "full swa"), NodeSpan(4, 8, "full swa")],
    )


def test_without_a_window_the_whole_node_is_restored():
    tree = demoted_tree(2, components=FULL_ONLY)

    insertion = insert(tree, NEW_PAGES[:2])

    assert (insertion.adopted, node_spans(tree)) == ([11, 12], [NodeSpan(0, 8, "full")])


def test_with_swa_pages_only_the_node_recovers():
    tree = demoted_tree(2, components=SWA_ONLY)

    insertion = insert(tree, NEW_PAGES[:2])

    assert (insertion.adopted, insertion.displaced, node_spans(tree)) == ([11, 12], [0, 0], [NodeSpan(0, 8, "swa")])
