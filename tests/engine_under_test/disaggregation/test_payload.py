"""The pages of a prompt that a transfer sends, and how they are read and written."""

from dataclasses import replace

import pytest
import torch

from swarden.engine_under_test.components import component_of
from swarden.engine_under_test.disaggregation.payload import Pages, read_pages, terms_of, write_pages
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import SlotLayout
from swarden.engine_under_test.sampling import SamplingParams
from tests.engine_under_test.builders import FULL_ONLY, HYBRID, NEIGHBOUR, SWA_ONLY
from tests.engine_under_test.disaggregation.sides import LONG, SIDES, Sides

LAYERED = SlotLayout(torch.float64, outer=(2, 2), inner=(3,))  # two layers, keys and values


def due(window: int | None, length: int, *, page_size: int, prefix_len: int = 0) -> list[int]:
    return list(component_of("pool", 100, window=window, page_size=page_size).pages_due(prefix_len, length))


# --- pages due


@pytest.mark.parametrize(
    ("page_size", "length", "indices"),
    [
        pytest.param(1, 3, [0, 1, 2], id="pages of one token"),
        pytest.param(4, 12, [0, 1, 2], id="whole pages"),
        pytest.param(4, 13, [0, 1, 2, 3], id="one token on the last page"),
        pytest.param(16, 5, [0], id="less than a page"),
    ],
)
def test_all_pages_of_a_full_pool_are_due(page_size, length, indices):
    assert due(None, length, page_size=page_size) == indices


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_windowed_pages_due_are_those_that_the_next_token_reads(page_size):
    for window in range(2, 40):
        for length in range(1, 70):
            read = {position // page_size for position in range(max(0, length - window + 1), length)}
            assert due(window, length, page_size=page_size) == sorted(read), f"window {window}, length {length}"


@pytest.mark.parametrize(
    ("prefix_len", "full", "windowed"),
    [
        pytest.param(0, list(range(10)), [7, 8, 9], id="no prefix"),
        pytest.param(16, [4, 5, 6, 7, 8, 9], [7, 8, 9], id="a prefix below the window"),
        pytest.param(28, [7, 8, 9], [7, 8, 9], id="a prefix up to the window"),
        pytest.param(32, [8, 9], [8, 9], id="a prefix into the window"),
        pytest.param(36, [9], [9], id="all but the last page"),
    ],
)
def test_pages_of_the_prefix_are_not_due(prefix_len, full, windowed):
    of_full = due(None, 37, page_size=4, prefix_len=prefix_len)
    of_swa = due(9, 37, page_size=4, prefix_len=prefix_len)

    assert (of_full, of_swa) == (full, windowed)


# --- reading and writing pages


def numbered(config=HYBRID, layout: SlotLayout = LAYERED) -> KVMemory:
    """Pools in which every value is different."""
    memory = KVMemory.for_config(config, None, layout=lambda _pool: layout)
    for pool in memory.pools:
        kv = memory.store.kv(pool.name)
        kv.copy_(torch.arange(kv.numel()).view(kv.shape))
    return memory


def pages_in(memory: KVMemory, pool: str, pages: list[int]) -> torch.Tensor:
    return memory.store.kv(pool).index_select(memory.store.page_dim(pool), torch.tensor(pages))


def test_windowed_pages_are_read_by_their_anchor_handles():
    memory = numbered()
    memory.ledgers.anchor.take(5, owner=NEIGHBOUR)
    handles = memory.ledgers.take(3, owner=NEIGHBOUR)

    pages, kv = read_pages(memory, "swa", handles)

    assert pages == memory.ledgers.pages_of("swa", handles) != handles
    assert torch.equal(kv, pages_in(memory, "swa", pages))


def test_read_pages_are_a_copy():
    """A page that is freed and overwritten after the read is still sent as it was."""
    memory = numbered()
    [page], kv = read_pages(memory, "full", memory.ledgers.take(1, owner=NEIGHBOUR))
    before = pages_in(memory, "full", [page])

    memory.store.kv("full").zero_()

    assert torch.equal(kv, before)


@pytest.mark.parametrize("config", [HYBRID, FULL_ONLY, SWA_ONLY], ids=["hybrid", "full only", "swa only"])
@pytest.mark.parametrize("layout", [LAYERED, SlotLayout(torch.int64)], ids=["layers", "tags"])
def test_pages_read_on_one_side_are_written_on_the_other(config, layout):
    here, there = numbered(config, layout), KVMemory.for_config(config, None, layout=lambda _pool: layout)
    there.ledgers.take(4, owner=NEIGHBOUR)
    sent, received = here.ledgers.take(3, owner=NEIGHBOUR), there.ledgers.take(5, owner=NEIGHBOUR)

    for pool in config.pools:
        pages, kv = read_pages(here, pool.name, sent)
        written = dict(write_pages(there, Pages(pool.name, 1, 3, kv), received, {1, 2, 3}))

        assert list(written) == [1, 2, 3]
        assert list(written.values()) == there.ledgers.pages_of(pool.name, received[1:4])
        assert torch.equal(pages_in(there, pool.name, list(written.values())), pages_in(here, pool.name, pages))


def test_only_pages_due_are_written():
    memory = numbered()
    handles = memory.ledgers.take(5, owner=NEIGHBOUR)
    kv = -1 - pages_in(memory, "full", handles[1:4])
    before = memory.store.kv("full").clone()

    written = dict(write_pages(memory, Pages("full", 1, 3, kv), handles, {0, 3, 4}))

    changed = (memory.store.kv("full") != before).any(dim=(0, 1, 3, 4)).nonzero().flatten().tolist()
    assert (written, changed) == ({3: handles[3]}, [handles[3]])
    assert torch.equal(pages_in(memory, "full", [handles[3]]), kv[:, :, 2:])


# --- terms


@pytest.mark.parametrize(
    ("config", "layout"),
    [
        pytest.param(replace(HYBRID, page_size=16), LAYERED, id="page size"),
        pytest.param(replace(HYBRID, sliding_window=7), LAYERED, id="window"),
        pytest.param(FULL_ONLY, LAYERED, id="pools"),
        pytest.param(HYBRID, LAYERED._replace(dtype=torch.bfloat16), id="dtype"),
        pytest.param(HYBRID, LAYERED._replace(inner=(4,)), id="shape of a slot"),
    ],
)
def test_terms_of_different_layouts_differ(config, layout):
    terms = [terms_of(numbered(*one)) for one in [(HYBRID, LAYERED), (config, layout)]]

    assert terms[0] != terms[1]


def test_terms_do_not_depend_on_the_pool_sizes():
    larger = replace(HYBRID, full_pages=99, swa_pages=50, max_running_requests=9)

    assert terms_of(KVMemory.for_config(larger, None)) == terms_of(KVMemory.for_config(HYBRID, None))


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
def test_request_on_sides_that_differ_ends_with_a_reason_that_names_both(changes, terms, first):
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
    assert sides.flush_frees_all()
