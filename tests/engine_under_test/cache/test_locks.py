"""Locks: the nodes that a receipt covers, the pages that a lock protects, and its single release."""

import pytest

from swarden.engine_under_test.cache.locks import LockDesk, LockReceipt
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.tree import RadixTree
from swarden.engine_under_test.errors import AccountingError
from tests.engine_under_test.builders import FULL, HYBRID, PAGE, SWA_ONLY, CacheBench, locks

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


def test_tombstone_adds_nothing_to_the_pages_to_lock():
    bench = CacheBench()
    bench.insert(KEY[:24], slid=True)

    assert bench.cache.pages_to_lock(bench.cache.match(KEY[:25], 0)) == {"full": 6, "swa": 2}
