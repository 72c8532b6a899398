"""What the rules say and the engine does not do yet; each test moves to its package when it holds."""

from dataclasses import replace

import pytest

from engine_under_test.cache.node import Component
from engine_under_test.cache.evict import evict
from engine_under_test.cache.tree import RadixTree
from engine_under_test.config import EngineConfig
from engine_under_test.errors import AccountingError, ConfigError, PoolExhausted
from engine_under_test.pools.ledger import Ledger
from engine_under_test.pools.paired import PairedLedgers
from engine_under_test.units import request_owner
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, CacheBench, Serving

KEY = list(range(100, 140))


def test_with_all_of_the_output_counted_on_nobody_is_ever_retracted():
    """Requests that arrive together are charged for each other's growth, as they are one step apart."""
    serving = Serving(replace(FULL_ONLY, new_token_ratio=1.0, new_token_ratio_floor=1.0))
    for first in (100, 200, 300):
        serving.submit(list(range(first, first + 4)), max_new_tokens=28)

    serving.run()

    assert [received.num_retractions for received in serving.received.values()] == [0, 0, 0]


@pytest.mark.parametrize("prompt_len", [64, 72], ids=["within the row", "beyond the row"])
def test_a_negative_number_of_tokens_is_rejected_at_arrival(prompt_len):
    serving = Serving(replace(HYBRID, full_pages=32))

    received = serving.serve(list(range(prompt_len)), max_new_tokens=-8)

    assert received.reason == "rejected: max_new_tokens -8 is below 0"


@pytest.mark.parametrize("kind", [list, tuple], ids=["list", "tuple"])
def test_tokens_match_in_whatever_sequence_they_come(kind):
    bench = CacheBench()
    bench.cached(KEY[:16])

    assert bench.cache.match(kind(KEY), 0).length == 16


def test_a_match_in_an_unknown_namespace_leaves_nothing_behind():
    bench = CacheBench()

    bench.cache.match(KEY, 7)

    assert 7 not in bench.cache.tree.roots


def test_a_namespace_of_which_nothing_is_left_is_forgotten():
    """Else a server with a namespace per user grows for ever."""
    bench = CacheBench()
    bench.cached(KEY[:16], namespace=7)

    bench.cache.flush()

    assert 7 not in bench.cache.tree.roots


@pytest.mark.parametrize("reuse", ["lifo", "fifo"])
def test_a_refused_take_leaves_the_order_of_the_free_pages(reuse):
    ledgers = PairedLedgers(
        [Ledger("full", 4, reuse=reuse), Ledger("swa", 1, reuse=reuse)], frozenset({"swa"})
    )
    before = ledgers.anchor.free_units

    with pytest.raises(PoolExhausted):
        ledgers.take(2, owner=request_owner(1))

    assert ledgers.anchor.free_units == before


def test_a_receipt_that_was_replaced_by_a_slide_is_not_taken_back():
    """It would give back more than it still covers, at the cost of whoever else has it locked."""
    bench = CacheBench()
    bench.cached(KEY[:20])
    old, _ = (bench.cache.lock(bench.cache.match(KEY[:21], 0)) for _ in range(2))
    bench.cache.slide(old, 16)

    with pytest.raises(AccountingError):
        bench.cache.unlock(old)


def test_peers_are_not_taken_over_by_a_page_that_has_its_own():
    """Its own would be nobody's from then on."""
    ledgers = PairedLedgers(
        [Ledger("full", 4, reuse="lifo"), Ledger("swa", 4, reuse="lifo")], frozenset({"swa"})
    )
    kept, incoming = ledgers.take(1, owner=request_owner(1)), ledgers.take(1, owner=request_owner(2))

    with pytest.raises(AccountingError):
        ledgers.take_over(kept, incoming, from_owner=request_owner(2), to_owner=request_owner(1))


def test_a_branch_of_many_short_nodes_can_be_evicted():
    """A conversation that grew token by token, all of it within the window."""
    tree = RadixTree((Component("full", None), Component("swa", 4096)), page_size=1)
    tokens = list(range(1500))
    for end in range(1, len(tokens) + 1):
        tree.insert(tokens[:end], tokens[1 : end + 1], namespace=0, protected_len=end - 1, frontier=0)

    assert evict(tree, [0, 1]).freed == [0, 1]


@pytest.mark.parametrize("value", [4.0, True], ids=["a fraction", "a truth"])
def test_a_page_size_is_a_whole_number(value):
    with pytest.raises(ConfigError):
        EngineConfig(page_size=value)
