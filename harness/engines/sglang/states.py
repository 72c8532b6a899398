"""Recurrent states: one slot per request and per node that caches a state, with a tag in each slot."""

from collections.abc import Mapping, Sequence
from typing import Any

from swarden.harness.engines.sglang.requests import held

STATE_POOL = "state"
STATE_WINDOW = 2  # a token reads the state that the token before it left


class SglangStates:
    """The states of one request table; a slot has the tag of the whole prefix that its state stands for, 0 if cleared.

    The slots are cleared and copied by the release's own pool, so a copy from a wrong slot shows as a wrong tag.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def prepare(self, batch: Any) -> None:
        """Clear and copy the slots that a batch asks for, as ModelRunner does before a prefill."""
        if not batch.forward_mode.is_extend():
            return
        if batch.mamba_clear_indices is not None:
            self._rows.mamba_pool.clear_slots(batch.mamba_clear_indices)
        if batch.mamba_cow_src_indices is not None:
            self._rows.mamba_pool.copy_from(batch.mamba_cow_src_indices, batch.mamba_cow_dst_indices)

    def track(self, batch: Any, index: int, computed: tuple[Any, Any]) -> int:
        """Copy the state of a prefix to the slot that the batch names for a request; returns the slot, 0 for none.

        `computed` are its entry, and the tags of its states: before the entry, if it has one, and after each token.  As
        the kernels of the models do: at the end of a pass, or in a prefill after the last whole chunk if the length is
        not one of whole chunks.
        """
        entry, of_state = computed
        start, tags = entry.start, of_state if entry.start else [0, *of_state]
        if batch.mamba_track_mask is None or not bool(batch.mamba_track_mask[index]):
            return 0
        slot, count = int(batch.mamba_track_indices[index]), len(tags) - 1
        if batch.forward_mode.is_extend():
            length = int(batch.mamba_track_seqlens[index]) - start
            chunk = batch.model_config.hf_text_config.mamba_chunk_size
            count = length // chunk * chunk if length % chunk else count
        self.write([slot], [tags[count]])
        return slot

    def commit(
        self, rows: Sequence[int], tags: Sequence[Sequence[int]], steps: Mapping[str, Any]
    ) -> list[dict[int, int]]:
        """Write the states after a verification, as update_mamba_state_after_mtp_verify does, which gets `steps`.

        `tags` are those of the states of each row, the one before the pass first.  Returns for each row the slots that
        it writes, that of its state and that of a prefix that it tracks, with the number of tokens of the pass in each.
        As in the kernel, a negative slot or step writes nothing.
        """
        targets = [(list(map(self.slot, rows)), steps["last_correct_step_indices"].tolist())]
        if steps["mamba_track_indices"] is not None:
            targets.append((steps["mamba_track_indices"].tolist(), steps["mamba_steps_to_track"].tolist()))
        written: list[dict[int, int]] = [{} for _ in rows]
        for slots, numbers in targets:
            for of_row, of_state, slot, number in zip(written, tags, slots, numbers, strict=True):
                if slot >= 0 and number >= 0:
                    self.write([slot], [of_state[number + 1]])
                    of_row[slot] = number + 1
        return written

    def read(self, slots: Sequence[int]) -> list[int]:
        tags: list[int] = self._tags[list(slots)].tolist()
        return tags

    def write(self, slots: Sequence[int], tags: Sequence[int]) -> None:
        for slot, tag in zip(slots, tags, strict=True):
            self._tags[slot] = tag

    def clear(self) -> None:
        self._tags[:] = 0

    @property
    def _tags(self) -> Any:
        return self._rows.mamba_pool.mamba_cache.temporal[0, :, 0, 0, 0]

    def slot(self, row: int) -> int:
        return int(self._rows.req_index_to_mamba_index_mapping[row])

    def free(self) -> list[int]:
        free: list[int] = self._rows.mamba_allocator.free_slots.tolist()
        return free


def slot_of(req: Any) -> int:
    """The slot of the state of a request; 0 if it has none."""
    slot = held(req, "mamba_pool_idx")
    return 0 if slot is None else int(slot)


def slots_of(req: Any) -> list[int]:
    """The slots of a request: that of its state, and those of the states of prefixes that it tracks."""
    buffer = held(req, "mamba_ping_pong_track_buffer")
    tracked = () if buffer is None else buffer.tolist()
    return [slot for slot in (slot_of(req), *tracked) if slot > 0]


def states_of(rows: Any) -> SglangStates | None:
    return SglangStates(rows) if hasattr(rows, "mamba_pool") else None
