"""Changes of the numbers of locks, as calls of an engine make them."""

from types import SimpleNamespace

import pytest

from swarden.harness.kit.locks import LockMove, watch_locks


class Tree:
    """Locks nodes a and b; `inc_lock_ref` calls another method that is watched."""

    def __init__(self):
        self.locks = {"a": 0, "b": 0}

    def inc_lock_ref(self):
        self.locks["a"] += 1
        self.inc_host_lock_ref()

    def inc_host_lock_ref(self):
        self.locks["b"] += 1

    def dec_lock_ref(self):
        self.locks["a"] -= 1
        raise ValueError("no lock")


@pytest.fixture
def noticed():
    return []


@pytest.fixture
def tree(noticed):
    tree = Tree()

    def counts():
        return {(node, "full"): count for node, count in tree.locks.items()}

    watch_locks([tree], counts, lambda request, moves: noticed.append((request, moves)))
    return tree


def test_calls_of_one_call_are_one_change_for_the_request_of_the_caller(tree, noticed):
    req = SimpleNamespace(rid="7")

    tree.inc_lock_ref()

    assert noticed == [(int(req.rid), [LockMove("a", "full", 0, 1), LockMove("b", "full", 0, 1)])]


def test_lock_that_a_failing_call_has_released_is_reported(tree, noticed):
    with pytest.raises(ValueError, match="no lock"):
        tree.dec_lock_ref()

    assert [moves for _, moves in noticed] == [[LockMove("a", "full", 0, -1)]]
