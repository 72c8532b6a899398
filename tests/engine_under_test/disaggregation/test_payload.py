"""Which pages go to the other side, stated per kind of pool, and that they arrive as they were read."""

from dataclasses import replace

import pytest
import torch

from engine_under_test.disaggregation.payload import (
    Pages,
    disagreement,
    pages_due,
    read_pages,
    terms_of,
    window_start,
    write_pages,
)
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import PoolSpec, SlotLayout
from engine_under_test.sampling import SamplingParams
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, NEIGHBOUR, SWA_ONLY
from tests.engine_under_test.disaggregation.sides import LONG, SIDES, Sides

FULL = PoolSpec("full", 100, None)
LAYERED = SlotLayout(torch.float64, outer=(2, 2), inner=(3,))  # two layers, keys and values


def swa(window: int) -> PoolSpec:
    return PoolSpec("swa", 100, window)


def due(pool: PoolSpec, length: int, *, page_size: int, prefix_len: int = 0) -> list[int]:
    return list(pages_due(pool, prefix_len=prefix_len, length=length, page_size=page_size))


# --- which pages


def test_the_worked_numbers_of_a_window():
    """n = 1000, W = 127, P = 64: the window starts at 832, and the tail of 168 tokens lies on 3 pages."""
    assert (window_start(1000, window=128, page_size=64), due(swa(128), 1000, page_size=64)) == (832, [13, 14, 15])


@pytest.mark.parametrize(
    ("page_size", "length", "indices"),
    [
        pytest.param(1, 3, [0, 1, 2], id="a page a token"),
        pytest.param(4, 12, [0, 1, 2], id="whole pages"),
        pytest.param(4, 13, [0, 1, 2, 3], id="one token on the last page"),
        pytest.param(16, 5, [0], id="less than a page"),
    ],
)
def test_of_a_pool_that_keeps_everything_all_pages_are_due(page_size, length, indices):
    assert due(FULL, length, page_size=page_size) == indices


@pytest.mark.parametrize(
    ("page_size", "window", "length", "indices"),
    [
        pytest.param(1, 2, 37, [36], id="page 1, the least window"),
        pytest.param(1, 9, 37, list(range(29, 37)), id="page 1, window above"),
        pytest.param(4, 3, 37, [8, 9], id="page 4, window below"),
        pytest.param(4, 4, 37, [8, 9], id="page 4, window at"),
        pytest.param(4, 6, 37, [8, 9], id="page 4, window above, the first position begins its page"),
        pytest.param(4, 7, 37, [7, 8, 9], id="page 4, window above, one position more"),
        pytest.param(4, 5, 36, [8], id="page 4, window above, whole pages"),
        pytest.param(4, 6, 36, [7, 8], id="page 4, window above, whole pages, one position more"),
        pytest.param(16, 4, 37, [2], id="page 16, window below, on one page"),
        pytest.param(16, 7, 37, [1, 2], id="page 16, window below, on two pages"),
        pytest.param(16, 16, 37, [1, 2], id="page 16, window at"),
        pytest.param(16, 22, 37, [1, 2], id="page 16, window above"),
        pytest.param(16, 23, 37, [0, 1, 2], id="page 16, window above, one position more"),
        pytest.param(16, 40, 37, [0, 1, 2], id="page 16, window above the prompt"),
    ],
)
def test_of_a_windowed_pool_the_pages_are_due_that_the_next_token_reads(page_size, window, length, indices):
    assert due(swa(window), length, page_size=page_size) == indices


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_pages_due_are_those_on_which_a_position_lies_that_is_read(page_size):
    for window in range(2, 40):
        for length in range(1, 70):
            read = {position // page_size for position in range(max(0, length - window + 1), length)}
            assert due(swa(window), length, page_size=page_size) == sorted(read), f"window {window}, length {length}"


@pytest.mark.parametrize(
    ("prefix_len", "full", "windowed"),
    [
        pytest.param(0, list(range(10)), [7, 8, 9], id="nothing is there"),
        pytest.param(16, [4, 5, 6, 7, 8, 9], [7, 8, 9], id="a prefix below the window"),
        pytest.param(28, [7, 8, 9], [7, 8, 9], id="a prefix up to the window"),
        pytest.param(32, [8, 9], [8, 9], id="a prefix into the window"),
        pytest.param(36, [9], [9], id="all but the last page"),
    ],
)
def test_what_is_there_already_is_not_due(prefix_len, full, windowed):
    of_full = due(FULL, 37, page_size=4, prefix_len=prefix_len)
    of_swa = due(swa(9), 37, page_size=4, prefix_len=prefix_len)

    assert (of_full, of_swa) == (full, windowed)


def test_of_what_is_there_whole_nothing_is_due():
    assert (due(FULL, 36, page_size=4, prefix_len=36), due(swa(9), 36, page_size=4, prefix_len=36)) == ([], [])


# --- how they are read and written


def numbered(config=HYBRID, layout: SlotLayout = LAYERED) -> KVMemory:
    """Pools in which no two places hold the same."""
    memory = KVMemory.for_config(config, None, layout=lambda _pool: layout)
    for pool in memory.pools:
        kv = memory.store.kv(pool.name)
        kv.copy_(torch.arange(kv.numel()).view(kv.shape))
    return memory


def pages_in(memory: KVMemory, pool: str, pages: list[int]) -> torch.Tensor:
    return memory.store.kv(pool).index_select(memory.store.page_dim(pool), torch.tensor(pages))


def test_pages_are_read_by_the_handles_of_the_anchor():
    memory = numbered()
    memory.ledgers.anchor.take(5, owner=NEIGHBOUR)
    handles = memory.ledgers.take(3, owner=NEIGHBOUR)

    pages, kv = read_pages(memory, "swa", handles)

    assert pages == memory.ledgers.pages_of("swa", handles) != handles
    assert torch.equal(kv, pages_in(memory, "swa", pages))


def test_what_was_read_stays_when_its_page_is_written():
    """Who frees a page at once sends what it held all the same."""
    memory = numbered()
    [page], kv = read_pages(memory, "full", memory.ledgers.take(1, owner=NEIGHBOUR))
    before = pages_in(memory, "full", [page])

    memory.store.kv("full").zero_()

    assert torch.equal(kv, before)


@pytest.mark.parametrize("config", [HYBRID, FULL_ONLY, SWA_ONLY], ids=["hybrid", "full only", "swa only"])
@pytest.mark.parametrize("layout", [LAYERED, SlotLayout(torch.int64)], ids=["layers", "tags"])
def test_what_is_read_on_one_side_is_written_on_the_other(config, layout):
    here, there = numbered(config, layout), KVMemory.for_config(config, None, layout=lambda _pool: layout)
    there.ledgers.take(4, owner=NEIGHBOUR)
    sent, received = here.ledgers.take(3, owner=NEIGHBOUR), there.ledgers.take(5, owner=NEIGHBOUR)

    for pool in config.pools:
        pages, kv = read_pages(here, pool.name, sent)
        written = dict(write_pages(there, Pages(pool.name, 1, 3, kv), received, {1, 2, 3}))

        assert list(written) == [1, 2, 3]
        assert list(written.values()) == there.ledgers.pages_of(pool.name, received[1:4])
        assert torch.equal(pages_in(there, pool.name, list(written.values())), pages_in(here, pool.name, pages))


def test_only_what_is_due_is_written():
    memory = numbered()
    handles = memory.ledgers.take(5, owner=NEIGHBOUR)
    kv = -1 - pages_in(memory, "full", handles[1:4])
    before = memory.store.kv("full").clone()

    written = dict(write_pages(memory, Pages("full", 1, 3, kv), handles, {0, 3, 4}))

    changed = (memory.store.kv("full") != before).any(dim=(0, 1, 3, 4)).nonzero().flatten().tolist()
    assert (written, changed) == ({3: handles[3]}, [handles[3]])
    assert torch.equal(pages_in(memory, "full", [handles[3]]), kv[:, :, 2:])


def test_where_nothing_is_due_nothing_is_written():
    memory = numbered()
    handles = memory.ledgers.take(2, owner=NEIGHBOUR)
    before = memory.store.kv("full").clone()

    written = list(write_pages(memory, Pages("full", 0, 2, torch.zeros(2, 2, 2, 4, 3)), handles, set()))

    assert (written, torch.equal(memory.store.kv("full"), before)) == ([], True)


# --- in what the sides must agree


@pytest.mark.parametrize(
    ("config", "layout", "terms"),
    [
        pytest.param(
            HYBRID,
            SlotLayout(torch.int64),
            "pages of 4 tokens, full of int64 [] a token, swa with window 6 of int64 [] a token",
            id="tags in both pools",
        ),
        pytest.param(
            replace(FULL_ONLY, page_size=16),
            LAYERED,
            "pages of 16 tokens, full of float64 [2, 2, 3] a token",
            id="layers, full only",
        ),
        pytest.param(
            SWA_ONLY,
            LAYERED._replace(dtype=torch.bfloat16),
            "pages of 4 tokens, swa with window 6 of bfloat16 [2, 2, 3] a token",
            id="layers, swa only",
        ),
    ],
)
def test_terms_say_what_pages_are_like(config, layout, terms):
    assert terms_of(KVMemory.for_config(config, None, layout=lambda _pool: layout)) == terms


def test_how_many_pages_a_pool_has_is_not_among_the_terms():
    larger = replace(HYBRID, full_pages=99, swa_pages=50, max_running_requests=9)

    assert terms_of(KVMemory.for_config(larger, None)) == terms_of(KVMemory.for_config(HYBRID, None))


def test_who_agrees_has_no_disagreement():
    assert disagreement("pages of 4 tokens", "pages of 4 tokens") is None


def test_a_disagreement_names_both_sides():
    assert disagreement("pages of 4 tokens", "pages of 8 tokens") == (
        "the sides differ: pages of 4 tokens here, pages of 8 tokens there; "
        "give both one configuration and the same prompt"
    )


@pytest.mark.parametrize("first", SIDES)
@pytest.mark.parametrize(
    ("changes", "terms"),
    [
        pytest.param({"page_size": 8}, "pages of 8 tokens, full of int64 [] a token, swa with window 6", id="page"),
        pytest.param(
            {"sliding_window": 7}, "pages of 4 tokens, full of int64 [] a token, swa with window 7", id="window"
        ),
        pytest.param({"full_pages": 0}, "pages of 4 tokens, swa with window 6", id="pools"),
    ],
)
def test_sides_that_differ_end_requests_with_a_reason_that_names_both(changes, terms, first):
    """Whichever side hears of it first."""
    sides = Sides(decode_config=replace(HYBRID, **changes))
    sides.submit(LONG, to=[first])
    sides.steps(1)
    [second] = {*SIDES} - {first}
    sides.submit_late(1, LONG, SamplingParams(4), to=second)

    sides.run(ms_per_step=50)

    here = "pages of 4 tokens, full of int64 [] a token, swa with window 6 of int64 [] a token"
    there = f"{terms} of int64 [] a token"
    for reason in sides.reasons().values():
        assert reason is not None
        assert "the sides differ" in reason
        assert here in reason
        assert there in reason
    assert sides.emptied()
