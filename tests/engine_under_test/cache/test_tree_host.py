"""The tree with a host tier: nodes that are demoted, that lose their copy, and that are restored."""

import pytest

from swarden.engine_under_test.cache.locks import LockDesk
from swarden.engine_under_test.cache.tree import Insertion, RadixTree
from tests.engine_under_test.builders import FULL, PAGE, SWA, NodeSpan, node_spans, nodes_of
from tests.engine_under_test.host.bench import copies

KEY = list(range(100, 124))
PAGES, NEW_PAGES, ON_HOST = [1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 25, 26]

HYBRID = (FULL, SWA)
SWA_ONLY = (SWA,)
ALL = {0, 1}  # components


def insert(tree: RadixTree, handles, *, protected_len: int = 0, frontier: int = 0) -> Insertion:
    """Insert the first tokens of KEY, as many as the handles hold."""
    tokens = KEY[: len(handles) * PAGE]
    return tree.insert(tokens, handles, namespace=0, protected_len=protected_len, absent={"swa": [range(frontier)]})


def tree_with_copies(*num_pages: int, components=HYBRID) -> RadixTree:
    """A branch of nodes with copies on the host; the nodes end after these numbers of pages."""
    tree = RadixTree(components, page_size=PAGE)
    shared = 0
    for count in num_pages:
        insert(tree, PAGES[:count], protected_len=shared)
        shared = count * PAGE
    for node in nodes_of(tree):
        for pages in node.host.pages:
            pages[:] = ON_HOST[node.start // PAGE : node.end // PAGE]
    return tree


def demoted_tree(*num_pages: int, components=HYBRID) -> RadixTree:
    """The same branch, on the host only."""
    tree = tree_with_copies(*num_pages, components=components)
    for node in reversed(list(nodes_of(tree))):
        tree.demote(node)
        node.handles = [0] * node.num_pages
    return tree


# --- demote


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


# --- copies


def test_node_without_pages_and_copy_is_removed():
    tree = demoted_tree(2)
    [node] = nodes_of(tree)

    tree.drop_copy(node, ALL)

    assert (list(nodes_of(tree)), tree.roots) == ([], {})


def test_empty_parent_is_removed_with_its_last_child():
    """With swa pages only, a node may have neither pages nor a copy while its child has a copy."""
    tree = demoted_tree(2, 4, components=SWA_ONLY)
    upper, lower = nodes_of(tree)
    tree.drop_copy(upper, ALL)
    between = copies(tree)

    tree.drop_copy(lower, ALL)

    assert (between, list(nodes_of(tree))) == ([NodeSpan(0, 8, ""), NodeSpan(8, 16, "swa")], [])


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

    assert (insertion.adopted, insertion.duplicates) == ([13, 14], {(): []})
    assert (insertion.handles[2:], node_spans(tree)) == ([13, 14], nodes)
