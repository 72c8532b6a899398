"""Locks: the nodes that a receipt covers, the pages that a lock protects, and its single release."""

import pytest

from swarden.engine_under_test.cache.locks import LockDesk, LockReceipt
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.tree import RadixTree
from swarden.engine_under_test.errors import AccountingError
from swarden.invariants.events import Locked, Unlocked
from tests.engine_under_test.builders import FULL, HYBRID, PAGE, SWA, SWA_ONLY, CacheBench, locks

KEY = list(range(100, 140))


def bench_with(length: int, config=HYBRID) -> CacheBench:
    """A cache with the first tokens of KEY, without a lock."""
    bench = CacheBench(config)
    bench.insert(KEY[:length])
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


def test_a_lock_counts_tombstones_as_covered():
    tree = RadixTree((FULL, SWA), page_size=PAGE)
    leaf = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, absent={"swa": [range(4)]}).node

    LockDesk(tree).lock(leaf)

    assert locks(tree, "swa") == {(0, 4): 1, (4, 8): 1}


def test_pages_of_two_receipts_stay_protected_until_both_are_unlocked():
    bench = bench_with(20)
    first, second = (bench.cache.lock(bench.cache.match(KEY[:21], 0)) for _ in range(2))
    bench.cache.unlock(first)
    after_one = bench.evictable

    bench.cache.unlock(second)

    assert (after_one, bench.evictable) == ({"full": 0, "swa": 3}, {"full": 5, "swa": 5})


def unlocked(cache: PrefixCache, receipt: LockReceipt) -> LockReceipt:
    cache.unlock(receipt)
    return receipt


def slid_and_unlocked(cache: PrefixCache, receipt: LockReceipt) -> LockReceipt:
    return unlocked(cache, cache.slide(receipt, {"swa": 16}))


def replaced_by_a_slide(cache: PrefixCache, receipt: LockReceipt) -> LockReceipt:
    cache.slide(receipt, {"swa": 16})
    return receipt


@pytest.mark.parametrize(
    "use", [PrefixCache.unlock, lambda cache, receipt: cache.slide(receipt, {"swa": 16})], ids=["unlock", "slide"]
)
@pytest.mark.parametrize("spend", [unlocked, slid_and_unlocked, replaced_by_a_slide])
def test_receipt_is_used_once(spend, use):
    """A second use would release the lock of the other receipt that covers the nodes."""
    bench = bench_with(20)
    first, _ = (bench.cache.lock(bench.cache.match(KEY[:21], 0)) for _ in range(2))
    receipt = spend(bench.cache, first)

    with pytest.raises(AccountingError) as caught:
        use(bench.cache, receipt)

    assert str(caught.value) == f"receipt {receipt.id}: released, or replaced by a slide, before"


def test_receipt_stays_valid_after_a_split():
    bench = bench_with(20)
    long = bench.cache.lock(bench.cache.match(KEY[:21], 0))
    short = bench.cache.lock(bench.cache.match(KEY[:17], 0))

    bench.cache.unlock(long)
    bench.cache.unlock(short)

    assert set(locks(bench.cache.tree, "full").values()) | set(locks(bench.cache.tree, "swa").values()) == {0}


@pytest.mark.parametrize(
    ("frontier", "swa_locks"),
    [
        pytest.param(8, {(0, 12): 0, (12, 20): 1}, id="before the covered range"),
        pytest.param(12, {(0, 12): 0, (12, 20): 1}, id="at its start"),
        pytest.param(16, {(0, 12): 0, (12, 16): 0, (16, 20): 1}, id="inside it"),
        pytest.param(20, {(0, 12): 0, (12, 20): 0}, id="at its end"),
        pytest.param(28, {(0, 12): 0, (12, 20): 0}, id="behind it"),
    ],
)
def test_slide_unlocks_the_window_below_the_frontier(frontier, swa_locks):
    bench = bench_with(20)
    receipt = bench.cache.lock(bench.cache.match(KEY[:21], 0))

    bench.cache.slide(receipt, {"swa": frontier})

    assert (locks(bench.cache.tree, "swa"), set(locks(bench.cache.tree, "full").values())) == (swa_locks, {1})


@pytest.mark.parametrize("frontier", [8, 16, 20, 28])
def test_unlock_after_a_slide_releases_the_rest(frontier):
    bench = bench_with(20)
    receipt = bench.cache.slide(bench.cache.lock(bench.cache.match(KEY[:21], 0)), {"swa": frontier})

    bench.cache.unlock(receipt)

    assert bench.evictable == {"full": 5, "swa": 5}


def test_with_swa_pages_only_the_leaf_of_a_slid_receipt_can_be_evicted():
    bench = bench_with(20, SWA_ONLY)
    receipt = bench.cache.slide(bench.cache.lock(bench.cache.match(KEY[:21], 0)), {"swa": 20})
    bench.cache.flush()

    bench.cache.unlock(receipt)

    assert bench.free == {"swa": 12}


def test_receipt_of_a_removed_node_raises():
    tree = RadixTree((FULL,), page_size=PAGE)
    leaf = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, absent={}).node
    receipt = LockDesk(tree).lock(leaf)
    leaf.locks[0] = 0
    tree.remove(leaf)

    with pytest.raises(AccountingError) as caught:
        list(receipt.segment(0))

    message = f"receipt {receipt.id}: nodes that it covers up to {leaf.end} left the tree while locked"
    assert str(caught.value) == message


def test_unlock_of_a_node_without_locks_raises():
    tree = RadixTree((FULL,), page_size=PAGE)
    leaf = tree.insert(KEY[:8], [1, 2], namespace=0, protected_len=0, absent={}).node
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

    assert [event for event in bench.log.events if isinstance(event, Locked | Unlocked)][-2:] == [
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
        pytest.param(9, 21, id="longer than another lock"),
        pytest.param(21, 9, id="shorter than another lock"),
        pytest.param(21, 21, id="the same as another lock"),
        pytest.param(14, 18, id="overlapping windows"),
    ],
)
def test_pages_to_lock_equal_the_pages_that_a_lock_protects(config, held, length):
    bench = bench_with(20, config)
    bench.start(KEY[:held])
    match = bench.cache.match(KEY[:length], 0)
    foreseen, before = bench.cache.pages_to_lock(match), bench.evictable

    bench.cache.lock(match)

    assert foreseen == {pool: before[pool] - bench.evictable[pool] for pool in before}


def test_tombstone_adds_nothing_to_the_pages_to_lock():
    bench = CacheBench()
    bench.insert(KEY[:24], slid=True)

    assert bench.cache.pages_to_lock(bench.cache.match(KEY[:25], 0)) == {"full": 6, "swa": 2}
