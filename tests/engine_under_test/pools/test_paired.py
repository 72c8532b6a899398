"""Pages of several pools are taken together, and freed by methods that check their peers."""

from functools import partial

import pytest

from swarden.engine_under_test.errors import AccountingError, PoolExhausted
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.pools.paired import PairedLedgers
from swarden.engine_under_test.units import request_owner
from swarden.invariants.events import TREE, Paired, Refused
from tests.engine_under_test.builders import EventLog

R1 = request_owner(1)


def pools(observer=None, **pages: int) -> PairedLedgers:
    """Pools of the given sizes, the anchor first; the lowest free page is taken first."""
    ledgers = [Ledger(name, count, reuse="fifo", observer=observer) for name, count in pages.items()]
    return PairedLedgers(ledgers, observer=observer)


def num_free(ledgers: PairedLedgers) -> dict[str, int]:
    return {ledger.name: ledger.num_free for ledger in ledgers.ledgers}


def test_a_take_pairs_the_pages_of_all_pools():
    ledgers = pools(full=4, swa=3)
    ledgers.anchor.take(1, owner=TREE)

    handles = ledgers.take(2, owner=R1)

    assert (handles, ledgers.pages_of("swa", handles)) == ([2, 3], [1, 2])


class RefusingBacking:
    """No memory for the pages of one pool."""

    def __init__(self, pool: str) -> None:
        self.pool = pool

    def allows(self, pool: str, count: int) -> bool:
        return pool != self.pool


@pytest.mark.parametrize(
    ("pages", "without_memory", "refused"),
    [
        pytest.param({"full": 1, "swa": 4}, "", Refused("full", R1, 2, 1), id="the anchor is short"),
        pytest.param({"full": 4, "swa": 1}, "", Refused("swa", R1, 2, 1), id="the second pool is short"),
        pytest.param({"full": 4, "swa": 4}, "full", Refused("full", R1, 2, 4), id="no memory behind the anchor"),
        pytest.param({"full": 4, "swa": 4}, "swa", Refused("swa", R1, 2, 4), id="no memory behind the second pool"),
    ],
)
def test_a_take_that_one_pool_refuses_takes_nothing_in_any(pages, without_memory, refused):
    log, backing = EventLog(), RefusingBacking(without_memory)
    each = [Ledger(name, count, reuse="fifo", observer=log, backing=backing) for name, count in pages.items()]
    ledgers = PairedLedgers(each, observer=log)

    with pytest.raises(PoolExhausted) as caught:
        ledgers.take(2, owner=R1)

    assert (caught.value.pool, num_free(ledgers), log.events) == (refused.pool, pages, [refused])
    assert ledgers.pages_of("swa", [1]) == [0]


def test_free_frees_the_pages_of_every_pool_in_which_the_handles_have_some():
    ledgers = pools(full=4, state=4, swa=4)
    handles = ledgers.take(2, owner=R1)
    ledgers.free_alone("swa", handles, owner=R1, cause="slid")

    ledgers.free(handles, owner=R1, cause="finished", lacks=("swa",))

    assert num_free(ledgers) == {"full": 4, "state": 4, "swa": 4}


@pytest.mark.parametrize("reuse", ["lifo", "fifo"])
def test_a_refused_take_leaves_the_order_of_the_free_pages(reuse):
    ledgers = PairedLedgers([Ledger("full", 4, reuse=reuse), Ledger("swa", 1, reuse=reuse)])

    with pytest.raises(PoolExhausted):
        ledgers.take(2, owner=R1)

    assert ledgers.anchor.free_units == (1, 2, 3, 4)


def test_free_frees_the_pages_of_all_pools_and_unpairs_them():
    ledgers = pools(full=4, swa=4)
    handles = ledgers.take(3, owner=R1)

    ledgers.free(handles, owner=R1, cause="finished")

    assert (num_free(ledgers), ledgers.pages_of("swa", handles)) == ({"full": 4, "swa": 4}, [0, 0, 0])


def test_free_alone_frees_only_the_pages_of_one_pool():
    ledgers = pools(full=4, swa=4)
    handles = ledgers.take(3, owner=R1)

    left = ledgers.free_alone("swa", handles[:2], owner=R1, cause="slid")

    assert (left, num_free(ledgers)) == (handles[:2], {"full": 1, "swa": 3})


@pytest.mark.parametrize(
    "free", [PairedLedgers.free, partial(PairedLedgers.free_alone, pool="swa")], ids=["free", "free alone"]
)
def test_free_of_a_page_without_its_peer_raises(free):
    ledgers = pools(full=4, swa=4)
    handles = ledgers.take(2, owner=R1)
    ledgers.free_alone("swa", handles[1:], owner=R1, cause="slid")

    with pytest.raises(AccountingError) as caught:
        free(ledgers, handles=handles, owner=R1, cause="finished")

    assert str(caught.value) == "full page 2: freed with its swa page (finished) by request r1, yet it has none"


def test_free_of_a_page_with_an_unexpected_peer_raises():
    ledgers = pools(full=4, swa=4)
    ledgers.followers[0].take(1, owner=TREE)
    handles = ledgers.take(1, owner=R1)

    with pytest.raises(AccountingError) as caught:
        ledgers.free(handles, owner=R1, cause="finished", lacks=("swa",))

    assert str(caught.value) == "full page 1: freed alone (finished) by request r1, yet it has swa page 2"


@pytest.mark.parametrize(
    ("pool", "free"),
    [
        pytest.param("full", PairedLedgers.free, id="full only"),
        pytest.param("swa", PairedLedgers.free, id="swa only"),
        pytest.param("full", partial(PairedLedgers.free, lacks=("swa",)), id="the rest"),
    ],
)
def test_free_of_the_padding_page_raises(pool, free):
    with pytest.raises(AccountingError) as caught:
        free(pools(**{pool: 4}), [0], owner=R1, cause="finished")

    assert str(caught.value) == f"{pool} page 0: the padding page was freed (finished)"


def test_take_over_moves_the_peers_to_the_kept_pages():
    ledgers = pools(full=4, swa=4)
    kept, incoming = ledgers.take(2, owner=TREE), ledgers.take(2, owner=R1)
    ledgers.free_alone("swa", kept, owner=TREE, cause="evicted")
    peers = ledgers.pages_of("swa", incoming)

    ledgers.take_over("swa", kept, incoming, from_owner=R1, to_owner=TREE)

    ledgers.free(incoming, owner=R1, cause="peers taken over", lacks=("swa",))
    assert (ledgers.pages_of("swa", kept), ledgers.pages_of("swa", incoming)) == (peers, [0, 0])
    assert num_free(ledgers) == {"full": 2, "swa": 2}


def test_take_over_by_a_page_with_a_peer_raises():
    """The old peer of the page would have no owner."""
    ledgers = pools(full=4, swa=4)
    kept, incoming = ledgers.take(1, owner=TREE), ledgers.take(1, owner=R1)

    with pytest.raises(AccountingError) as caught:
        ledgers.take_over("swa", kept, incoming, from_owner=R1, to_owner=TREE)

    assert str(caught.value) == "full page 1: takes over a swa page, yet it has swa page 1"


def test_begin_and_end_of_a_pairing_are_reported():
    log = EventLog()
    ledgers = pools(log, full=4, swa=4)
    ledgers.free_alone("swa", ledgers.take(2, owner=R1), owner=R1, cause="slid")

    assert log.of(Paired) == [Paired("full", "swa", (1, 2), (1, 2)), Paired("full", "swa", (1, 2), (0, 0))]


def test_free_alone_in_a_pool_that_does_not_exist_frees_nothing():
    ledgers = pools(full=4)
    handles = ledgers.take(2, owner=R1)

    left = ledgers.free_alone("swa", handles, owner=R1, cause="slid")

    assert (left, num_free(ledgers)) == (handles, {"full": 2})


def test_only_pool_is_freed_alone():
    ledgers = pools(swa=4)
    left = ledgers.free_alone("swa", ledgers.take(2, owner=R1), owner=R1, cause="slid")

    ledgers.free(left, owner=R1, cause="finished", lacks=("swa",))

    assert (left, num_free(ledgers)) == ([0, 0], {"swa": 4})


def test_free_of_handles_that_should_be_gone_raises():
    ledgers = pools(swa=4)
    handles = ledgers.take(2, owner=R1)

    with pytest.raises(AccountingError) as caught:
        ledgers.free(handles, owner=R1, cause="finished", lacks=("swa",))

    assert str(caught.value) == "swa pages [1, 2]: freed as dead (finished) by request r1"


def test_give_skips_pages_that_were_freed_alone():
    log = EventLog()
    ledgers = pools(log, full=4, swa=4)
    handles = ledgers.take(2, owner=R1)
    ledgers.free_alone("swa", handles[:1], owner=R1, cause="slid")

    ledgers.give(handles, from_owner=R1, to_owner=TREE)

    assert [tuple(event[:2]) for event in log.events[-2:]] == [("full", (1, 2)), ("swa", (2,))]
