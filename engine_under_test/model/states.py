"""Recurrent states in the engine's pool: the slots that a pass reads and writes, and how entries are batched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from swarden.engine_under_test.model.recurrent import Recurrence
from swarden.engine_under_test.ports import ForwardBatch, PoolPages


class Alike(NamedTuple):
    """The key of entries that are computed in one call; `asked` are indices of tokens of an entry."""

    num_tokens: int
    is_start: bool
    asked: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StateGroup:
    """Entries for one call of a recurrence."""

    alike: Alike
    rows: torch.Tensor  # their tokens in the pass, (batch * tokens,) int64
    read: torch.Tensor | None  # the slots of the states before them, (batch,); None at the start of sequences
    write: torch.Tensor  # the slots of the states after the asked tokens, (batch * asked,)


@dataclass(frozen=True, slots=True)
class StatePass:
    """The pool of states in one pass; its storage is (layers, pages + 1, slots, state_size)."""

    storage: torch.Tensor
    groups: Sequence[StateGroup]

    def recur(self, index: int, x: torch.Tensor, recurrence: Recurrence) -> torch.Tensor:
        """The outputs, (tokens, width), of the layer with this place in the pool; x is (tokens, inputs)."""
        by_slot = self.storage[index].flatten(0, 1)
        # A slot that one entry reads, another may write.
        before = [None if group.read is None else by_slot.index_select(0, group.read) for group in self.groups]
        outputs = []
        for group, state in zip(self.groups, before, strict=True):
            tokens = x.index_select(0, group.rows).view(-1, group.alike.num_tokens, x.shape[1])
            recurred = recurrence(tokens, state, group.alike.asked)
            by_slot.index_copy_(0, group.write, recurred.states.flatten(0, 1))
            outputs.append(recurred.out.flatten(0, 1))
        in_groups, rows = torch.cat(outputs), torch.cat([group.rows for group in self.groups])
        return torch.empty_like(in_groups).index_copy_(0, rows, in_groups)


def state_pass(batch: ForwardBatch, pool: PoolPages) -> StatePass:
    """The entries of a pass, grouped by number of tokens, asked places, and whether they start at 0."""
    members: dict[Alike, list[int]] = {}
    first_rows, rows = [], 0
    for index, (entry, states) in enumerate(zip(batch.entries, pool.states, strict=True)):
        asked = tuple(position - entry.start for position in states.positions)
        members.setdefault(Alike(entry.end - entry.start, entry.start == 0, asked), []).append(index)
        first_rows.append(rows)
        rows += entry.end - entry.start
    return StatePass(
        pool.kv,
        [_group(pool, alike, indices, [first_rows[index] for index in indices]) for alike, indices in members.items()],
    )


def _group(pool: PoolPages, alike: Alike, indices: Sequence[int], first_rows: Sequence[int]) -> StateGroup:
    states, device = [pool.states[index] for index in indices], pool.kv.device
    rows = [first + row for first in first_rows for row in range(alike.num_tokens)]
    write = [slot for of_entry in states for slot in of_entry.slots]
    return StateGroup(
        alike,
        rows=torch.tensor(rows, device=device),
        read=None if alike.is_start else torch.tensor([of_entry.read for of_entry in states], device=device),
        write=torch.tensor(write, dtype=torch.int64, device=device),
    )
