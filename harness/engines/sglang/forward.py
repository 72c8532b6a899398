"""The stand-in for the model: one tag per slot of each pool, written and read through the release's own tables."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import invariants.events as seen
from harness.engines.foreign.stand_ins import Missing
from harness.engines.sglang.attributes import VOCABULARY
from harness.engines.sglang.boot import Release
from harness.engines.sglang.config import SglangConfig
from harness.engines.sglang.memory import Memory
from harness.engines.sglang.requests import Request, held
from harness.engines.sglang.states import States, states_of
from invariants.reference import namespace_tag, next_tag, sampled_token

FULL, SWA = 0, 1


class Entry(NamedTuple):
    """Positions [start, end) of a request in a pass, and the slots of [0, end) in both pools at its launch."""

    request: Request
    start: int
    end: int
    slots: tuple[Sequence[int], Sequence[int]]
    row: int

    def is_held_by(self, live: Mapping[int, Request]) -> bool:
        """Whether the request still has the row that the pass was launched for."""
        return self.request.id in live and held(self.request.req, "req_pool_idx") == self.row

    @property
    def ids(self) -> tuple[int, int, int]:
        return self.request.id, self.start, self.end


class Pass(NamedTuple):
    """A launched pass whose result is not processed yet; `reads` are reported when it is.

    `drafts` are, per entry, the drafts that it computes; () if no entry has any.
    """

    launch: int
    entries: Sequence[Entry]
    reads: list[seen.Read]
    drafts: Sequence[Sequence[int]] = ()


class TagForward:
    """Computes each pass when it is launched. Passes run in launch order on one stream, so no later call of the
    scheduler can change what a pass reads.
    """

    def __init__(self, release: Release, config: SglangConfig, notice: Callable[[NamedTuple], None]) -> None:
        page = config.page_size
        self.release, self._notice = release, notice
        self._page_size, self._window = page, config.sliding_window + 1
        self.tags = ([0] * (config.full_pages + 1) * page, [0] * (config.swa_pages + 1) * page)
        self.last_launch = 0
        self.in_flight: list[Pass] = []

    def launch(self, batch: Any, memory: Memory) -> Any:
        """Launch and compute a batch of the scheduler; returns its result, for the scheduler to process later."""
        self.last_launch += 1
        entries = entries_of(batch, memory)
        launched = Pass(self.last_launch, entries, [])
        self.in_flight.append(launched)
        self._notice(seen.Launched(launched.launch, tuple([entry.ids for entry in entries])))
        states = states_of(memory.rows)
        if states is not None:
            states.prepare(batch)
        for entry in entries:
            self._write(launched.launch, entry, states)
        torch = self.release.torch
        tokens = torch.tensor([self._read(launched, entry) for entry in entries], dtype=torch.int64)
        batch.output_ids = tokens
        return Missing(
            next_token_ids=tokens,
            can_run_cuda_graph=False,
            num_correct_drafts=0,
            num_accepted_tokens=0,
            logits_output=Missing(),
            get_num_generated_tokens=lambda count: count,
            copy_done=_Event(),
            swarden_pass=launched,
        )

    def complete(self, result: Any, unfinished: Mapping[int, Request]) -> None:
        """The scheduler begins to process a result."""
        done: Pass = result.swarden_pass
        self.in_flight.remove(done)
        for read in done.reads:
            self._notice(read)
        self._notice(seen.Completed(done.launch))
        for entry in done.entries:
            if not entry.is_held_by(unfinished):
                self._notice(seen.Discarded(done.launch, entry.request.id))

    def _write(self, launch: int, entry: Entry, states: States | None) -> None:
        full, swa = self.tags
        request, start, end, (places, windowed), row = entry
        tag = full[places[start - 1]] if start else namespace_tag(request.namespace)
        if states is not None:  # a pass computes from the state; a cleared one is of no token
            tag = states.tag(row) or namespace_tag(request.namespace)
        for token, place, other in zip(request.tokens(start, end), places[start:], windowed[start:], strict=True):
            tag = full[place] = next_tag(tag, token)
            if other:
                swa[other] = tag
        if states is not None:
            states.set_tag(row, tag)
        for component, (pool, slots) in enumerate((("full", places), ("swa", windowed))):
            pages = tuple(dict.fromkeys(slot // self._page_size for slot in slots[start:]))
            self._notice(seen.Written(launch, request.id, pool, start, end, pages, component))

    def _read(self, one: Pass, entry: Entry) -> int:
        """Read the tags of an entry in both pools; returns the token sampled from them."""
        full, swa = self.tags
        request, start, end, (places, windowed), _ = entry
        read = array("q", [full[place] for place in places])
        first = max(0, start + 1 - self._window)
        in_window = array("q", [swa[place] for place in windowed[first:]])
        one.reads.append(seen.Read(one.launch, request.id, "full", 0, read, FULL))
        one.reads.append(seen.Read(one.launch, request.id, "swa", first, in_window, SWA))
        last = max(0, end - self._window)
        token = sampled_token((sum(read), sum(in_window[last - first :])), VOCABULARY)
        request.next_tokens[end] = token
        return token


class _Event:
    def synchronize(self) -> None: ...


def entries_of(batch: Any, memory: Memory) -> list[Entry]:
    """The requests of a batch that is about to be launched, with the slots that they read and write."""
    return [
        Entry(req.swarden, start, end, slots_of(memory, row, end), row)
        for req, (start, end), row in zip(batch.reqs, _ranges(batch), batch.req_pool_indices.tolist(), strict=True)
    ]


def _ranges(batch: Any) -> list[tuple[int, int]]:
    """Per request of a batch, the positions that the pass computes."""
    if batch.forward_mode.is_extend():
        return [(start, start + count) for start, count in zip(batch.prefix_lens, batch.extend_lens, strict=True)]
    return [(end - 1, end) for end in batch.seq_lens.tolist()]


def slots_of(memory: Memory, row: int, end: int) -> tuple[list[int], list[int]]:
    """The slots of positions [0, end) of a row, in both pools."""
    slots = memory.rows.req_to_token[row, :end]
    return slots.tolist(), memory.allocator.full_to_swa_index_mapping[slots.long()].tolist()
