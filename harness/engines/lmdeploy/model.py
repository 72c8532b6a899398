"""The stand-in for the model: its KV and its states are tags, in memory of its own."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from swarden.harness.engines.lmdeploy.config import LmdeployConfig
from swarden.harness.kit.tags import ReadTags, TagMemory, chain_of_prompt, slots_of, token_after

Reads = Callable[[int, Sequence[ReadTags]], None]  # the index of an entry, and what its layers read per component


class Row(NamedTuple):
    """What the forward pass gets for one request: its new tokens, and where its KV and its state are.

    The block table begins with the block of position `ignored`.
    """

    tokens: list[int]
    start: int
    table: Sequence[int]
    ignored: int
    state: int

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


class TagLayers:
    """A model that writes a tag per token, and one of all tokens to the state, and samples from the tags it reads."""

    def __init__(self, config: LmdeployConfig, on_read: Reads) -> None:
        self._size, self._window, self._on_read = config.page_size, config.window, on_read
        self._blocks = TagMemory(config.num_blocks, config.page_size)
        self._states = TagMemory(config.num_states) if config.states else None

    def copy_logical_blocks(self, plan: Any) -> None:
        """As CacheEngine: copy blocks, at once."""
        self._blocks.copy_units(*plan.tolist())

    def copy_slots(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """As StateCacheEngine: copy states, at once."""
        assert self._states is not None, "a model without states copies none"
        self._states.copy_units(sources, targets)

    copy_caches = copy_slots  # its name in older releases

    def clear(self) -> None:
        """Lose the content of the memory."""
        for memory in filter(None, (self._blocks, self._states)):
            memory.clear()

    def forward(self, inputs: Any) -> list[int]:
        """Write and read what a pass computes.  Returns a token for each position, sampled behind each entry."""
        rows, sampled = _rows(inputs), list[int]()
        # A request may read a token that another one computes in this pass, because they share its block: each layer of
        # a model writes the KV of all requests before it reads.
        for row in sorted(rows, key=lambda row: row.start):
            self._write(row)
        for index, row in enumerate(rows):
            reads = [self._read(row)]
            if self._states is not None:
                reads.append(self._pass_state(row))
            self._on_read(index, reads)
            sampled += [0] * (len(row.tokens) - 1) + [token_after(reads, row.end)]
        return sampled

    def _slots(self, row: Row, start: int, end: int) -> list[int]:
        begin, size = row.ignored, self._size
        return slots_of(row.table, start - begin, end - begin, page_size=size, unit_size=size)

    def _write(self, row: Row) -> None:
        before = self._blocks.read(self._slots(row, row.start - 1, row.start))[0] if row.start else 0
        self._blocks.write(self._slots(row, row.start, row.end), chain_of_prompt(before, row.tokens, row.start))

    def _read(self, row: Row) -> ReadTags:
        first = ReadTags.first_of(self._window, row.start)
        return ReadTags(self._window, first, self._blocks.read(self._slots(row, first, row.end)))

    def _pass_state(self, row: Row) -> ReadTags:
        """Read the state before an entry, and write that behind it."""
        assert self._states is not None, "it has states"
        before = self._states.read([row.state], 1) if row.start else self._states.read([])
        tags = chain_of_prompt(before[0] if before else 0, row.tokens, row.start)
        self._states.fill(row.state, tags[-1], 1)
        return ReadTags(2, row.start - len(before), before + tags)


def _rows(inputs: Any) -> list[Row]:
    tokens, lens = inputs.input_ids[0].tolist(), inputs.seq_length.tolist()
    starts, ignored = inputs.history_lengths.tolist(), inputs.num_ignored_history.tolist()
    states = [0] * len(lens) if inputs.state_offsets is None else inputs.state_offsets.tolist()
    parts = [tokens[start:end] for start, end in pairwise(accumulate(lens, initial=0))]
    return [Row(*row) for row in zip(parts, starts, inputs.block_offsets.tolist(), ignored, states, strict=True)]
