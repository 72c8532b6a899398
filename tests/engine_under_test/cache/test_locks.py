"""Locks: what a receipt covers, what taking one costs, and that each is given back once."""

import pytest

from engine_under_test.cache.locks import LockDesk
from engine_under_test.cache.node import Component
from engine_under_test.cache.tree import RadixTree
from engine_under_test.errors import AccountingError
from engine_under_test.events import Locked, Unlocked
from tests.engine_under_test.builders import HYBRID, PAGE, SWA_ONLY, WINDOW, CacheBench, locks

KEY = list(range(100, 140))


def bench_with(length: int, config=HYBRID) -> CacheBench:
    """A cache that holds the first tokens of KEY, and nobody who reads them."""
    bench = CacheBench(config)
    bench.cached(KEY[:length])
    return bench


def test_a_lock_covers_all_of_the_prefix_in_full_and_the_last_window_in_swa():
    bench = bench_with(20)

    bench.cache.lock(bench.cache.match(KEY[:21], 0))

    assert (locks(bench.cache.tree, "full"), locks(bench.cache.tree, "swa")) == (
        {(0, 12): 1, (12, 20): 1},
        {(0, 12): 0, (12, 20): 1},
    )


def test_a_lock_inside_a_node_covers_its_upper_part():
    bench = bench_with(20)

    bench.cache.lock(bench.cache.match(KEY[:18], 0))

    assert (locks(bench.cache.tree, "full"), locks(bench.cache.tree, "swa")) == (
        {(0, 8): 1, (8, 12): 1, (12, 16): 1, (16, 20): 0},
        {(0, 8): 0, (8, 12): 1, (12, 16): 1, (16, 20): 0},
    )


def test_a_lock_on_nothing_covers_nothing():
    bench = bench_with(20)

    receipt = bench.cache.lock(bench.cache.match([1, 2, 3], 0))
    bench.cache.unlock(receipt)

    assert bench.evictable == {"full": 5, "swa": 5}


def test_a_lock_counts_tombstones_as_covered():
    tree = RadixTree((Component("full", None), Component("swa", WINDOW)), page_size=PAGE)
    leaf = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, frontier=4).node

    LockDesk(tree).lock(leaf)

    assert locks(tree, "swa") == {(0, 4): 1, (4, 8): 1}


@pytest.mark.parametrize(
    ("evictable", "unlocked"),
    [pytest.param({"full": 0, "swa": 3}, {"full": 5, "swa": 5}, id="the last window is protected")],
)
def test_what_a_receipt_covers_is_evictable_again_when_it_is_back(evictable, unlocked):
    bench = bench_with(20)
    receipt = bench.cache.lock(bench.cache.match(KEY[:21], 0))
    under_lock = bench.evictable

    bench.cache.unlock(receipt)

    assert (under_lock, bench.evictable) == (evictable, unlocked)


def test_two_receipts_protect_until_both_are_back():
    bench = bench_with(20)
    first, second = (bench.cache.lock(bench.cache.match(KEY[:21], 0)) for _ in range(2))
    bench.cache.unlock(first)
    after_one = bench.evictable

    bench.cache.unlock(second)

    assert (after_one, bench.evictable) == ({"full": 0, "swa": 3}, {"full": 5, "swa": 5})


def test_a_receipt_is_given_back_once():
    bench = bench_with(20)
    receipt = bench.cache.lock(bench.cache.match(KEY[:21], 0))
    bench.cache.unlock(receipt)

    with pytest.raises(AccountingError) as caught:
        bench.cache.unlock(receipt)

    assert str(caught.value) == f"receipt {receipt.id}: released, or replaced by a slide, before"


def test_a_receipt_is_not_given_back_twice_though_another_holds_the_same_nodes():
    bench = bench_with(20)
    first, second = (bench.cache.lock(bench.cache.match(KEY[:21], 0)) for _ in range(2))
    bench.cache.unlock(second)

    with pytest.raises(AccountingError) as caught:
        bench.cache.unlock(second)

    assert (str(caught.value), first.id == second.id) == (
        f"receipt {second.id}: released, or replaced by a slide, before",
        False,
    )


def test_a_split_under_a_lock_leaves_the_receipt_true():
    bench = bench_with(20)
    long = bench.cache.lock(bench.cache.match(KEY[:21], 0))
    short = bench.cache.lock(bench.cache.match(KEY[:17], 0))

    bench.cache.unlock(long)
    bench.cache.unlock(short)

    assert set(locks(bench.cache.tree, "full").values()) | set(locks(bench.cache.tree, "swa").values()) == {0}


@pytest.mark.parametrize(
    ("frontier", "swa_locks"),
    [
        pytest.param(8, {(0, 12): 0, (12, 20): 1}, id="before what is covered"),
        pytest.param(12, {(0, 12): 0, (12, 20): 1}, id="at its start"),
        pytest.param(16, {(0, 12): 0, (12, 16): 0, (16, 20): 1}, id="inside it"),
        pytest.param(20, {(0, 12): 0, (12, 20): 0}, id="at its end"),
        pytest.param(28, {(0, 12): 0, (12, 20): 0}, id="behind it"),
    ],
)
def test_a_slide_gives_back_the_window_below_the_frontier(frontier, swa_locks):
    bench = bench_with(20)
    receipt = bench.cache.lock(bench.cache.match(KEY[:21], 0))

    bench.cache.slide(receipt, frontier)

    assert (locks(bench.cache.tree, "swa"), set(locks(bench.cache.tree, "full").values())) == (swa_locks, {1})


@pytest.mark.parametrize("frontier", [8, 16, 20, 28])
def test_a_slid_receipt_gives_back_what_is_left(frontier):
    bench = bench_with(20)
    receipt = bench.cache.slide(bench.cache.lock(bench.cache.match(KEY[:21], 0)), frontier)

    bench.cache.unlock(receipt)

    assert bench.evictable == {"full": 5, "swa": 5}


def test_a_slide_leaves_the_locks_of_others():
    bench = bench_with(20)
    first, _ = (bench.cache.lock(bench.cache.match(KEY[:21], 0)) for _ in range(2))

    bench.cache.slide(first, 20)

    assert bench.evictable == {"full": 0, "swa": 3}


def test_a_slid_receipt_is_given_back_once():
    bench = bench_with(20)
    receipt = bench.cache.slide(bench.cache.lock(bench.cache.match(KEY[:21], 0)), 16)
    bench.cache.unlock(receipt)

    with pytest.raises(AccountingError) as caught:
        bench.cache.unlock(receipt)

    assert str(caught.value) == f"receipt {receipt.id}: released, or replaced by a slide, before"


def test_a_receipt_that_a_slide_replaced_is_not_taken_back():
    """It would give back more than is still covered, at the cost of whoever else has that locked."""
    bench = bench_with(20)
    old, _ = (bench.cache.lock(bench.cache.match(KEY[:21], 0)) for _ in range(2))
    bench.cache.slide(old, 16)

    with pytest.raises(AccountingError) as caught:
        bench.cache.unlock(old)

    assert str(caught.value) == f"receipt {old.id}: released, or replaced by a slide, before"


def test_a_receipt_that_was_given_back_does_not_slide():
    bench = bench_with(20)
    receipt = bench.cache.lock(bench.cache.match(KEY[:21], 0))
    bench.cache.unlock(receipt)

    with pytest.raises(AccountingError) as caught:
        bench.cache.slide(receipt, 16)

    assert str(caught.value) == f"receipt {receipt.id}: released, or replaced by a slide, before"


def test_with_swa_pages_only_a_slide_lets_the_leaf_of_its_receipt_go():
    bench = bench_with(20, SWA_ONLY)
    receipt = bench.cache.slide(bench.cache.lock(bench.cache.match(KEY[:21], 0)), 20)
    bench.cache.flush()

    bench.cache.unlock(receipt)

    assert bench.free == {"swa": 12}


def test_a_lock_on_what_has_left_the_tree_is_named():
    tree = RadixTree((Component("full", None),), page_size=PAGE)
    leaf = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, frontier=0).node
    receipt = LockDesk(tree).lock(leaf)
    leaf.locks[0] = 0
    tree.remove(leaf)

    with pytest.raises(AccountingError) as caught:
        list(receipt.segment(0))

    told = f"receipt {receipt.id}: nodes that it covers below {leaf.end} left the tree while locked"
    assert str(caught.value) == told


def test_a_node_that_nobody_has_locked_is_not_unlocked():
    tree = RadixTree((Component("full", None),), page_size=PAGE)
    leaf = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, frontier=0).node
    desk = LockDesk(tree)
    receipt = desk.lock(leaf)
    leaf.locks[0] = 0

    with pytest.raises(AccountingError) as caught:
        desk.unlock(receipt)

    assert str(caught.value) == f"node {leaf.id}: full unlocked, but no receipt locks it"


def test_locking_and_unlocking_are_reported():
    bench = bench_with(20)
    match = bench.cache.match(KEY[:21], 0)

    receipt = bench.cache.lock(match)
    bench.cache.unlock(receipt)

    assert [event for event in bench.heard.events if isinstance(event, Locked | Unlocked)][-2:] == [
        Locked(receipt.id, match.node.id),
        Unlocked(receipt.id, match.node.id),
    ]


@pytest.mark.parametrize("config", [HYBRID, SWA_ONLY], ids=["hybrid", "swa only"])
@pytest.mark.parametrize(
    ("held", "length"),
    [
        pytest.param(0, 3, id="no match"),
        pytest.param(0, 9, id="a match inside a node"),
        pytest.param(0, 21, id="a match of all"),
        pytest.param(9, 21, id="behind what another has locked"),
        pytest.param(21, 9, id="before what another has locked"),
        pytest.param(21, 21, id="just what another has locked"),
        pytest.param(14, 18, id="overlapping windows"),
    ],
)
def test_the_pages_to_lock_are_those_that_a_lock_takes(config, held, length):
    bench = bench_with(20, config)
    bench.start(KEY[:held])
    match = bench.cache.match(KEY[:length], 0)
    foreseen, before = bench.cache.pages_to_lock(match), bench.evictable

    bench.cache.lock(match)

    assert foreseen == {pool: before[pool] - bench.evictable[pool] for pool in before}


def test_a_tombstone_costs_nothing_to_lock():
    bench = CacheBench()
    bench.cached(KEY[:24], slid=True)

    assert bench.cache.pages_to_lock(bench.cache.match(KEY[:25], 0)) == {"full": 6, "swa": 2}


def test_the_pages_to_lock_are_found_without_a_change():
    bench = bench_with(20)
    heard = len(bench.heard.events)

    bench.cache.pages_to_lock(bench.cache.match(KEY[:10], 0))

    assert (len(bench.heard.events), bench.evictable) == (heard, {"full": 5, "swa": 5})
