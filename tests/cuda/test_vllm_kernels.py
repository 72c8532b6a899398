"""The stand-in for vLLM's model runner beside the release's triton kernels."""

import random
from types import SimpleNamespace

import pytest
import torch

from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.device import Device
from swarden.harness.engines.vllm.parts.states import VllmStates
from swarden.harness.engines.vllm.passes import VllmEntry, VllmPass
from swarden.harness.kit.settings import made
from swarden.harness.kit.tags import ReadTags, TagMemory, slots_of
from tests.cuda.released import DEVICE, NUM_CASES, integers, on_device

NEWEST = "vllm==0.33.0"
RUNNER = "v1/worker"
PAD = -1
INT32 = torch.int32
WIDTH = 24  # of a block table


@pytest.mark.parametrize("block_size", [1, 4, 16, 64])
def test_slots_of_new_tokens_are_those_of_both_runners(block_size, taken):
    second = taken(NEWEST)(f"{RUNNER}/gpu/buffer_utils.py", "_load_ptr")
    second = taken(NEWEST)(
        f"{RUNNER}/gpu/block_table.py", "_compute_slot_mappings_kernel", _load_ptr=second._load_ptr
    )._compute_slot_mappings_kernel
    first = taken(NEWEST)(f"{RUNNER}/block_table.py", "ComputeSlotMappingKernel.kernel").kernel
    draw = random.Random(block_size)

    for _ in range(NUM_CASES):
        number, padding = draw.randint(1, 6), draw.randint(0, 5)
        table = integers([[draw.randrange(1, 90) for _ in range(WIDTH)] for _ in range(number)], INT32)
        ranges = [sorted(draw.randrange(WIDTH * block_size + 1) for _ in range(2)) for _ in range(number)]
        positions = [position for start, end in ranges for position in range(start, end)]
        borders = _borders([end - start for start, end in ranges])
        expected = [
            slot
            for row, (start, end) in zip(table.tolist(), ranges, strict=True)
            for slot in slots_of(row, start, end, page_size=block_size, unit_size=block_size)
        ]
        most = len(positions) + padding
        by_first, by_second = (on_device(torch.full(shape, 7)) for shape in ((most,), (1, most)))
        places = on_device(integers(positions + [0] * (not positions)))
        tables = on_device(table)

        first[(number + 1,)](
            len(positions), most, borders, places, tables, WIDTH, by_first, block_size, 1, 0, 1, PAD, 1024
        )
        of_groups = [_pointers([tables]), *map(_one, (WIDTH, block_size, True, True), (torch.int64, INT32, bool, bool))]
        second[(1, number + 1)](most, _rows(number), borders, places, *of_groups, by_second, most, 0, 1, 1, PAD, 1024)

        assert by_first.tolist() == by_second[0].tolist() == expected + [PAD] * padding


def test_entries_that_a_window_does_not_read_are_nulled_and_no_others(taken):
    """The second runner nulls blocks below a window; the stand-in reads none of them."""
    loads = taken(NEWEST)(f"{RUNNER}/gpu/buffer_utils.py", "_load_ptr")._load_ptr
    name = "_gather_block_tables_kernel"
    kernel = getattr(taken(NEWEST)(f"{RUNNER}/gpu/block_table.py", name, _load_ptr=loads), name)
    spec = taken(NEWEST)("v1/kv_cache_interface.py", "SlidingWindowSpec.num_retained_tokens")
    draw = random.Random(7)

    for _ in range(NUM_CASES):
        number, window, block_size = draw.randint(1, 6), draw.randint(2, 40), draw.choice([1, 4, 16])
        table = integers([[draw.randrange(1, 90) for _ in range(WIDTH)] for _ in range(number)], INT32)
        counts = integers([[draw.randint(1, WIDTH) for _ in range(number)]], INT32)
        starts = [draw.randrange(count * block_size) for count in counts[0].tolist()]
        out = on_device(torch.zeros(number, WIDTH, dtype=INT32))
        reach = spec.num_retained_tokens(SimpleNamespace(sliding_window=window, extra_retained_tokens=0))
        tables = on_device(table)

        kernel[(1, number)](
            *[_rows(number), _pointers([tables]), _pointers([out]), _one(WIDTH, torch.int64)],
            *[on_device(counts), number, number, on_device(integers(starts, INT32))],
            *[_one(reach, INT32), _one(block_size, INT32), True, 1024],
        )

        for row, gathered, start, count in zip(table.tolist(), out.tolist(), starts, counts[0].tolist(), strict=True):
            first = ReadTags.first_of(window, start) // block_size
            assert gathered == [0] * first + row[first:count] + [0] * (WIDTH - count)


def test_drafts_are_accepted_as_by_the_rejection_sampler(taken, monkeypatch):
    name = "rejection_greedy_sample_kernel"
    kernel = getattr(taken(NEWEST)("v1/sample/rejection_sampler.py", name), name)
    draw, most = random.Random(8), 4
    config = made(VllmConfig, {"windows": (), "draft_len": most, "num_blocks": 64})

    for _ in range(NUM_CASES):
        number = draw.randint(1, 6)
        drafts = [[draw.randrange(2) for _ in range(draw.randint(0, most))] for _ in range(number)]
        wanted = [[draw.randrange(2) for _ in range(len(of_request) + 1)] for of_request in drafts]
        device, by_entry = Device(config), iter(wanted)
        monkeypatch.setattr(device, "_sampled", lambda *_, answers=by_entry: next(answers))
        device.namespaces = dict.fromkeys(range(number), 0)
        entries = [
            VllmEntry(request, 0, 1 + len(of_request), [[1 + 2 * request, 2 + 2 * request]], of_request)
            for request, of_request in enumerate(drafts)
        ]
        known = {request: [5] for request in range(number)}
        out = on_device(torch.full((number, most + 1), PAD, dtype=INT32))
        ends = on_device(_borders(list(map(len, drafts)))[1:])
        flat = [on_device(integers([0, *_flat(rows)])[1:].to(INT32)) for rows in (drafts, [row[:-1] for row in wanted])]
        bonus = on_device(integers([row[-1] for row in wanted], INT32))

        sampled = device.compute(VllmPass(1, entries, known=known, admitted=range(number)))
        kernel[(number,)](out, ends, *flat, bonus, None, most, None, None, False)

        assert [[token for token in row if token != PAD] for row in out.tolist()] == sampled


BLOCK, MOST_DRAFTS, REQUESTS, COLUMNS = 4, 3, 3, 40


@pytest.mark.parametrize("second_runner", [False, True])
def test_running_states_move_as_by_the_fused_kernels(second_runner, taken):
    """Requests of several passes, with and without drafts: the same states in all blocks, and the same one is read."""
    runner = FusedStates(taken(NEWEST), second_runner)
    draw = random.Random(9)

    for _ in range(NUM_CASES):
        num_units = REQUESTS * COLUMNS
        sizes = {"block_size": BLOCK, "windows": (), "num_blocks": num_units}
        config = made(VllmConfig, {**sizes, "state_groups": 1, "draft_len": MOST_DRAFTS})
        memory, order = TagMemory(num_units), draw.sample(range(1, num_units + 1), num_units)
        states = VllmStates(config.state_mode, config.groups, memory)
        [group] = states.groups
        tables = [order[request * COLUMNS : (request + 1) * COLUMNS] for request in range(REQUESTS)]
        runner.restart(num_units, tables)
        computed, tag = [0] * REQUESTS, 0
        for step in range(8):
            drafts = [draw.randint(0, MOST_DRAFTS) if step else 0 for _ in range(REQUESTS)]
            counts = [1 + few if step and draw.random() < 0.8 else draw.randint(few + 1, 9) for few in drafts]
            ends = [start + count for start, count in zip(computed, counts, strict=True)]
            columns = map(states.columns, range(REQUESTS), computed, ends, drafts)
            entries = [
                VllmEntry(request, start, end, [[], tables[request]], [0] * few, places)
                for request, (start, end, few, places) in enumerate(zip(computed, ends, drafts, columns, strict=True))
            ]
            states.move(entries, ())
            runner.move(computed, counts)
            read = [states.read([entry]).get((entry.request, group), 0) for entry in entries]
            assert runner.read() == read
            assert runner.columns() == [entry.columns.first for entry in entries]
            for entry, count, few in zip(entries, counts, drafts, strict=True):
                states.write(entry, group, range(tag + 1, tag + count + 1))
                runner.write(entry.request, range(tag + count - few, tag + count + 1))
                tag += count
            accepted = [draw.randint(0, few) for few in drafts]
            states.accept(entries, accepted)
            runner.accept(computed, counts, drafts, accepted)
            computed = [
                start + count - few + right
                for start, count, few, right in zip(computed, counts, drafts, accepted, strict=True)
            ]
            assert runner.tags.tolist() == memory.read(range(num_units + 1), group).tolist()


class FusedStates:
    """The running states of one pool, moved by the kernels of the release: each block has one int64."""

    def __init__(self, taken, second_runner):
        self._second_runner = second_runner
        names = ("_memcpy_u64_tiled", "_copy_mamba_state_block", "postprocess_mamba_fused_kernel")
        first = ("preprocess_mamba_align_fused_kernel", "precopy_mamba_align_fused_kernel")
        self._kernels = taken(f"{RUNNER}/mamba_utils.py", *names, *first)

    def restart(self, num_units, tables):
        self.tags = on_device(torch.zeros(num_units + 1, dtype=torch.int64))
        self._table = on_device(integers(tables, INT32))
        self._column = on_device(torch.full((REQUESTS,), PAD, dtype=INT32))
        self._num_accepted = on_device(torch.ones(REQUESTS, dtype=INT32))
        values = [_pointers([self._table]).view(torch.int64), COLUMNS, _pointers([self.tags]).view(torch.int64)]
        self._layout = [*values, *map(_one, (8, 8, 1, 0, 0, 0, 0), [torch.int64, *[INT32] * 5, torch.int64])]

    def columns(self):
        return self._column.tolist()

    def move(self, computed, counts):
        source, offset = (torch.zeros_like(self._column) for _ in range(2))
        if self._second_runner:
            self._kernels.preprocess_mamba_align_fused_kernel[(1,)](
                *[_rows(REQUESTS), self._column, on_device(integers(computed, INT32)), _borders(counts)],
                *[self._num_accepted, source, offset, REQUESTS, 8, BLOCK],
            )
        else:  # preprocess_mamba, on the CPU
            source.copy_(self._column)
            offset.copy_(self._num_accepted - 1)
            ends = integers([start + count for start, count in zip(computed, counts, strict=True)], INT32)
            self._column.copy_(-(-ends // BLOCK) - 1)
            self._num_accepted[(source >= 0) & (source != self._column)] = 1
        self._kernels.precopy_mamba_align_fused_kernel[(REQUESTS, 1, 2)](
            *[self._column, source, offset, *self._layout, self._mapping, REQUESTS, 1024, False],
            *[self._second_runner, 2],
        )

    def read(self):
        """The state that each request goes on from: a decode reads it behind the drafts that were accepted."""
        columns = (self._column + self._num_accepted - 1).tolist()
        return [int(self.tags[self._table[request, column]]) for request, column in enumerate(columns)]

    def write(self, request, tags):
        first = int(self._column[request])
        for column, tag in enumerate(tags, first):
            self.tags[self._table[request, column]] = tag

    def accept(self, computed, counts, drafts, accepted):
        self._num_accepted = on_device(integers([right + 1 for right in accepted], INT32))
        before = self._num_accepted.clone()
        ends = [sum(one) for one in zip(computed, counts, strict=True)]
        after = [end - few + right for end, few, right in zip(ends, drafts, accepted, strict=True)]
        lens = [after, after, after] if self._second_runner else [counts, computed, drafts]
        scheduled, known, proposed = (on_device(integers(column, INT32)) for column in lens)
        self._kernels.postprocess_mamba_fused_kernel[(REQUESTS, 1, 2)](
            *[before, self._column, scheduled, known, proposed, *self._layout, self._num_accepted, self._mapping],
            *[REQUESTS, BLOCK, 1024, False, self._second_runner, self._second_runner, 2],
        )

    @property
    def _mapping(self):
        return _rows(REQUESTS) if self._second_runner else None


def _rows(number):
    return on_device(torch.arange(number, dtype=INT32))


def _borders(counts):
    return on_device(torch.cat([torch.zeros(1, dtype=INT32), integers(counts, INT32).cumsum(0).to(INT32)]))


def _flat(rows):
    return [one for row in rows for one in row]


def _pointers(tensors):
    return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.uint64).to(DEVICE)


def _one(value, dtype):
    return torch.tensor([value], dtype=torch.bool if dtype is bool else dtype).to(DEVICE)
