"""What stands for the kernels of SGLang, and what a release does without a GPU, beside its triton kernels."""

import random
from itertools import accumulate
from types import SimpleNamespace

import pytest
import torch

from swarden.harness.engines.sglang.forward import SglangEntry, slots_of
from swarden.harness.engines.sglang.parts.drafts import _assign, _split
from swarden.harness.engines.sglang.pools import SglangMemory
from swarden.harness.engines.sglang.stand_ins import replace_allocator_kernels
from swarden.harness.engines.sglang.states import SglangStates
from swarden.harness.kit.stand_ins import Silent
from tests.cuda.released import DEVICE, NUM_CASES, integers, module_of, on_device, power_of_2

NEWEST, BEFORE_THE_OVERLAP = "sglang==0.5.23", "sglang==0.5.12.post1"
KERNELS = "kernels/ops"
PAGE_SIZES = (1, 4, 16, 64)
ROWS, ROW_LEN = 9, 700
UNWRITTEN = -7


def lengths(draw, page_size, most_pages=3):
    """The length of a prefix and of the sequence, often at a border of pages, sometimes with nothing to extend."""
    most = most_pages * page_size
    near = [count * page_size + step for count in range(most_pages) for step in (-1, 0, 1)]
    first, second = (max(0, draw.choice([draw.randrange(most), draw.choice(near)])) for _ in range(2))
    return min(first, second), draw.choice([max(first, second), min(first, second), max(first, second)])


def table_of(draw):
    """A request table (ROWS, ROW_LEN) int32, as a release has it."""
    return torch.randint(1, 10_000, (ROWS, ROW_LEN), generator=generator_of(draw), dtype=torch.int32)


def generator_of(draw):
    return torch.Generator().manual_seed(draw.randrange(1 << 30))


def some_rows(draw):
    return draw.sample(range(ROWS), draw.randint(1, ROWS))


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_slots_of_new_tokens_are_those_of_the_kernels(page_size, taken):
    kernels = taken(NEWEST)(f"{KERNELS}/memory/allocator.py", "alloc_extend_kernel", "alloc_decode_kernel")
    naive = taken(NEWEST)("srt/mem_cache/allocator/paged.py", "alloc_extend_naive", "alloc_decode_naive")
    stand_ins = module_of(
        alloc_extend_naive=naive.alloc_extend_naive, alloc_extend_kernel=None, alloc_decode_kernel=None
    )
    replace_allocator_kernels([stand_ins])
    draw = random.Random(page_size)

    for _ in range(NUM_CASES):
        batch = [lengths(draw, page_size) for _ in range(draw.randint(1, 9))]
        pages = draw.sample(range(1, 500), 100)
        # The slot before the new tokens: at a border, that of another page or of none.
        last = [draw.choice(pages[60:]) * page_size + (start - 1) % page_size if start else -1 for start, _ in batch]
        starts, ends = (integers(column) for column in zip(*batch, strict=True))
        number, upper = int((ends - starts).sum()), power_of_2(len(batch))
        extended = [starts, ends, integers(last), integers(pages), torch.full((number,), UNWRITTEN), upper, page_size]
        decoded = [starts + 1, integers(last), integers(pages), torch.full((len(batch),), UNWRITTEN), upper, page_size]
        new_pages = int(((starts + page_size) // page_size - (starts + page_size - 1) // page_size).sum())
        alone = torch.full((len(batch),), UNWRITTEN)

        stand_ins.alloc_extend_kernel[(len(batch),)](*extended)
        stand_ins.alloc_decode_kernel[(len(batch),)](*decoded)
        naive.alloc_decode_naive(starts + 1, integers(last), integers(pages), alone, page_size, new_pages)
        copies = [[on_device(one) for one in arguments] for arguments in (extended, decoded)]
        for arguments, out in zip(copies, (4, 3), strict=True):
            arguments[out].fill_(UNWRITTEN)
        kernels.alloc_extend_kernel[(len(batch),)](*copies[0])
        kernels.alloc_decode_kernel[(len(batch),)](*copies[1])

        assert copies[0][4].tolist() == extended[4].tolist(), (batch, last, pages)
        assert copies[1][3].tolist() == decoded[3].tolist() == alone.tolist(), (batch, last, pages)


def test_rows_of_a_prefill_are_those_of_the_kernels(taken):
    """The rows that a batch writes, and the last slot of a prefix, with attention backends of a GPU and of the CPU."""
    kernels = taken(NEWEST)(f"{KERNELS}/memory/common.py", "write_req_to_token_pool_triton", "get_last_loc_kernel")
    triton_last = taken(NEWEST)(f"{KERNELS}/memory/common.py", "get_last_loc_kernel", "get_last_loc_triton")
    backend = SimpleNamespace(name="")
    known = {
        "attention_backends": lambda: (backend.name, backend.name),
        "support_triton": lambda name: name == "triton",
        "is_pin_memory_available": lambda _: False,
        "write_req_to_token_pool_triton": kernels.write_req_to_token_pool_triton,
    }
    names = ("write_cache_indices", "get_last_loc_torch")
    release = taken(NEWEST)("srt/mem_cache/allocation.py", *names, **known)
    draw = random.Random(1)

    for _ in range(NUM_CASES):
        rows, before = some_rows(draw), table_of(draw)
        pairs = [sorted(draw.choice([0, 1, 511, 512, 513, draw.randrange(ROW_LEN)]) for _ in range(2)) for _ in rows]
        starts, ends = (integers(column) for column in zip(*pairs, strict=True))
        prefixes = [torch.randint(1, 10_000, (start,), generator=generator_of(draw)) for start, _ in pairs]
        slots = torch.randint(1, 10_000, (int((ends - starts).sum()),), generator=generator_of(draw))
        written = {}
        for backend.name in ("triton", "torch_native"):
            to = on_device if backend.name == "triton" else torch.clone
            pool = SimpleNamespace(req_to_token=to(before), device=DEVICE)
            pool.write = pool.req_to_token.__setitem__
            of_batch = [one for column in (rows, starts, ends, ends - starts) for one in _twice(column, to)]
            release.write_cache_indices(to(slots), *of_batch, [to(prefix) for prefix in prefixes], pool)
            written[backend.name] = pool.req_to_token
        table = written["triton"]
        last = triton_last.get_last_loc_triton(table, on_device(integers(rows)), on_device(starts))

        assert torch.equal(table.cpu(), written["torch_native"]), pairs
        assert last.tolist() == release.get_last_loc_torch(table.cpu(), integers(rows), starts).tolist()


def _twice(column, to):
    """A column of a batch on the device and on the CPU."""
    values = torch.as_tensor(column)
    return to(values), values


def test_slots_of_drafts_are_assigned_and_split_as_by_the_kernels(taken):
    assign = taken(NEWEST)("srt/mem_cache/allocation.py", "assign_req_to_token_pool").assign_req_to_token_pool
    split = taken(BEFORE_THE_OVERLAP)("srt/speculative/spec_utils.py", "get_target_cache_loc").get_target_cache_loc
    draw = random.Random(2)

    for _ in range(NUM_CASES):
        rows, count = some_rows(draw), draw.randint(1, 70)
        starts = [draw.randrange(ROW_LEN - 140) for _ in rows]
        ends = [start + draw.choice([0, 1, 31, 32, 33, count]) for start in starts]
        slots = torch.randint(1, 10_000, (sum(ends) - sum(starts),), generator=generator_of(draw))
        assigned = [integers(rows), table_of(draw), integers(starts), integers(ends), slots]
        of_split = [draw.randrange(count) for _ in rows]
        freed = [draw.randint(0, count - 1 - right) for right in of_split]
        outputs = [torch.full((number,), UNWRITTEN) for number in (sum(of_split) + len(rows), sum(freed))]
        taken_slots = torch.randint(1, 10_000, (len(rows) * count,), generator=generator_of(draw))
        parts = [*outputs, integers(of_split), integers(freed), taken_slots, count]
        copies = [[on_device(one) for one in arguments] for arguments in (assigned, parts)]
        upper = power_of_2(len(rows))

        _assign(*assigned)
        _split(*parts)
        assign[(len(rows),)](*copies[0], ROW_LEN, upper)
        split[(len(rows),)](*copies[1], power_of_2(count), upper)

        assert torch.equal(copies[0][1].cpu(), assigned[1]), (rows, starts, ends)
        assert [one.tolist() for one in copies[1][:2]] == [one.tolist() for one in outputs], (of_split, freed, count)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_windowed_pages_are_freed_as_by_the_kernel(page_size, taken):
    fused = taken(NEWEST)(f"{KERNELS}/memory/allocator.py", "get_and_clear_swa_pages_kernel", "get_and_clear_swa_pages")
    methods = ("_free_swa_pages_none_cuda", "_expand_to_full_pages", "clear_full_to_swa_mapping")
    of_class = [f"SWATokenToKVPoolAllocator.{name}" for name in methods]
    known = {"expect": Silent().expect, "_SWA_PEER_MAPPED": None, "_is_npu": False}
    release = taken(NEWEST)("srt/mem_cache/allocator/swa.py", *of_class, **known)
    draw, num_pages = random.Random(page_size), 40

    for _ in range(NUM_CASES):
        peers = draw.sample(range(1, num_pages + 1), num_pages)
        mapping = torch.tensor([page * page_size + offset for page in [0, *peers] for offset in range(page_size)])
        pages = integers(draw.sample(range(1, num_pages + 1), draw.randint(1, num_pages)))
        slots = (pages[:, None] * page_size + torch.arange(page_size)).flatten()
        on_gpu, reps = on_device(mapping), on_device(slots)[::page_size]
        self = SimpleNamespace(full_to_swa_index_mapping=mapping, page_size=page_size, device="cpu")
        self.swa_attn_allocator = SimpleNamespace(debug_mode=False)
        for name in methods[1:]:
            setattr(self, name, getattr(release, name).__get__(self))

        freed = release._free_swa_pages_none_cuda(self, slots[::page_size])
        by_kernel, are_mapped, _ = fused.get_and_clear_swa_pages(reps, on_gpu, page_size)

        assert by_kernel.tolist() == freed.tolist()
        assert bool(are_mapped.all())
        assert torch.equal(on_gpu.cpu(), mapping)


def test_kv_moves_as_by_the_kernel(taken):
    tiled = taken(NEWEST)(f"{KERNELS}/kvcache/cache_move.py", "copy_all_layer_kv_cache_tiled")
    native = taken(NEWEST)("srt/mem_cache/memory_pool.py", "move_kv_cache_native").move_kv_cache_native
    draw = random.Random(3)

    for _ in range(NUM_CASES):
        heads, width, num_locs = draw.choice([1, 2, 3]), draw.choice([2, 40]), draw.randint(1, 40)
        shape = (64, heads, width)
        buffers = [torch.randn(shape, generator=generator_of(draw)) for _ in range(4)]
        source = integers([draw.randrange(64) for _ in range(num_locs)])
        target = integers(draw.sample(range(64), num_locs))  # some of them are sources, too
        moved = [on_device(buffer) for buffer in buffers]
        pointers = torch.tensor([buffer.data_ptr() for buffer in moved], dtype=torch.uint64).to(DEVICE)
        stride = heads * width * buffers[0].element_size()

        native(buffers[:2], buffers[2:], target, source)
        tiled.copy_all_layer_kv_cache_tiled[(len(moved), -(-stride // 128))](
            pointers, on_device(integers([stride] * 4)), on_device(target), on_device(source), num_locs, 64, 128
        )

        assert all(torch.equal(one.cpu(), buffer) for one, buffer in zip(moved, buffers, strict=True))


def test_states_are_cleared_copied_and_tracked_as_by_the_kernels(taken):
    """The states of convolutions by fused kernels, and the copy of a state to the slot that is tracked."""
    release = taken(NEWEST)("srt/mem_cache/memory_pool.py", "MambaPool.clear_slots", "MambaPool.copy_from")
    pointers = taken(NEWEST)(f"{KERNELS}/memory/ptr_table.py", "make_ptr_table")
    fused = taken(NEWEST)(
        "srt/mem_cache/mamba_slot_fused.py",
        "ConvSlotDescriptor",
        "_fused_slot_clear_kernel",
        "_fused_slot_copy_kernel",
        "build_conv_slot_descriptor",
        "fused_clear_conv_slots",
        "fused_copy_conv_slots",
        make_ptr_table=pointers.make_ptr_table,
        _BLOCK=1024,
    )
    draw, slots = random.Random(4), 24

    for _ in range(NUM_CASES):
        convs = [torch.randn(2, slots, width, 3, generator=generator_of(draw)).bfloat16() for width in (1, 5, 400)]
        copied = [on_device(conv) for conv in convs]
        places = draw.sample(range(slots), slots)
        count = draw.randint(1, slots // 3)
        cleared, source, target = (
            integers(places[first : first + count], torch.int32) for first in (0, count, 2 * count)
        )
        cache = SimpleNamespace(conv=convs, temporal=torch.zeros(1, slots, 1))
        pool = SimpleNamespace(mamba_cache=cache, _slot_siblings=(), replayssm_write_pos=None)
        pool._should_fuse_slot_ops = lambda: False

        release.clear_slots(pool, cleared)
        release.copy_from(pool, source, target)
        description = fused.build_conv_slot_descriptor(copied)
        fused.fused_clear_conv_slots(description, on_device(cleared))
        fused.fused_copy_conv_slots(description, on_device(source), on_device(target))

        assert all(torch.equal(one.cpu(), conv) for one, conv in zip(copied, convs, strict=True))


def test_state_of_a_decode_is_tracked_as_by_the_kernel(taken):
    file = f"{KERNELS}/mamba/mamba_state_scatter_triton.py"
    names = ("_copy_track_chunk", "track_mamba_state_if_needed_kernel", "_launch_track_mamba_states")
    sizes = {"_TRACK_BLOCK_SIZE": 8192, "_TRACK_CHUNK_BYTES": 32768, "_TRACK_PROGRAMS_PER_SM": 4}
    known = {"_num_sms": lambda _: 4, **sizes}
    kernel = taken(NEWEST)(file, *names, "track_mamba_states_if_needed", **known)
    indices = taken(NEWEST)(
        f"{KERNELS}/mamba/mamba_state_indices_triton.py",
        "_fused_replay_state_indices_kernel",
        "fused_replay_state_indices",
    )
    draw, slots = random.Random(5), 24

    for _ in range(NUM_CASES):
        rows, places = some_rows(draw), draw.sample(range(1, slots), 2 * ROWS)
        temporal = torch.randint(1, 1 << 40, (1, slots, 1, 1, 1), generator=generator_of(draw))
        mapping = integers(places[:ROWS], torch.int32)
        states = SglangStates(
            SimpleNamespace(
                mamba_pool=SimpleNamespace(mamba_cache=SimpleNamespace(temporal=temporal)),
                req_index_to_mamba_index_mapping=mapping,
            )
        )
        mask = torch.tensor([draw.random() < 0.5 for _ in rows])
        tracked = integers(places[ROWS : ROWS + len(rows)])
        batch = SimpleNamespace(mamba_track_mask=mask, mamba_track_indices=tracked)
        batch.forward_mode = SimpleNamespace(is_extend=lambda: False)
        after = [draw.randrange(1, 1 << 40) for _ in rows]
        own = indices.fused_replay_state_indices(
            req_pool_indices=on_device(integers(rows)),
            mamba_index_mapping=on_device(mapping),
            out_state_indices=on_device(integers([UNWRITTEN] * len(rows), torch.int32)),
            valid_bs=len(rows),
            total_bs=len(rows),
        )
        by_kernel = on_device(temporal)[0]
        by_kernel[own.long()] = on_device(integers(after)).view(-1, 1, 1, 1)

        for index, (row, tag) in enumerate(zip(rows, after, strict=True)):
            entry = SglangEntry(None, 5, 6, ((),), row)  # type: ignore[arg-type]  # its request is not looked at
            states.track(batch, index, (entry, [1, tag]))
            states.write([states.slot(row)], [tag])
        conv = on_device(torch.zeros(slots, 1))
        kernel.track_mamba_states_if_needed(conv, by_kernel, own, on_device(mask), on_device(tracked), len(rows))

        assert own.tolist() == [states.slot(row) for row in rows]
        assert torch.equal(by_kernel.cpu(), temporal[0])


def test_slots_that_a_pass_reads_are_those_of_the_kernel(taken):
    name = "create_flashinfer_kv_indices_triton"
    kernel = getattr(taken(NEWEST)(f"{KERNELS}/attention/kv_indices.py", name), name)
    draw = random.Random(6)

    for _ in range(NUM_CASES):
        rows, table = some_rows(draw), table_of(draw)
        ends = [draw.choice([1, 511, 512, 513, draw.randrange(1, ROW_LEN)]) for _ in rows]
        memory = SglangMemory(SimpleNamespace(req_to_token=table), SimpleNamespace(), None)
        borders = integers([0, *accumulate(ends)], torch.int32)
        found = on_device(torch.full((sum(ends),), UNWRITTEN, dtype=torch.int32))

        kernel[(len(rows),)](
            *[on_device(one) for one in (table, integers(rows), integers(ends, torch.int32), borders)],
            None,
            found,
            ROW_LEN,
        )

        assert found.tolist() == [
            slot for row, end in zip(rows, ends, strict=True) for slot in slots_of(memory, row, end)[0]
        ]
