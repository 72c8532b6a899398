"""The memory of the device: each block holds one tag per token, or the tag of one recurrent state."""

from collections.abc import Sequence

from swarden.harness.engines.vllm.config import LayerGroup
from swarden.invariants.reference import TAG_MASK

# The layers of another group compute another KV from the same tokens: the tags of group g are salted with g times this.
SALT = 0x3D4D51CB1F2A6B77 & TAG_MASK


class VllmMemory:
    """The slots of each block; 0 is the tag of an unwritten slot.

    The groups share the blocks: a block of another group has tags of another salt.  A state fills its block.
    """

    def __init__(self, num_blocks: int, groups: Sequence[LayerGroup]) -> None:
        self._groups = groups
        self._width = max(group.block_size for group in groups if not group.has_states)
        self._slots = [0] * (num_blocks + 1) * self._width

    def get(self, group: int, table: Sequence[int], position: int) -> int:
        """The tag of a position; 0 where the table has no block."""
        index, offset = divmod(position, self._groups[group].block_size)
        return self._salted(group, self._slots[table[index] * self._width + offset] if index < len(table) else 0)

    def put(self, group: int, table: Sequence[int], position: int, tag: int) -> None:
        """Write the tag of a position; a position without a block goes to the null block, which nobody reads."""
        index, offset = divmod(position, self._groups[group].block_size)
        if index < len(table) and table[index]:
            self._slots[table[index] * self._width + offset] = self._salted(group, tag)

    def state(self, group: int, block: int) -> int:
        """The tag of the state in a block."""
        return self._salted(group, self._slots[block * self._width])

    def put_state(self, group: int, block: int, tag: int) -> None:
        """Write a state to a block; the null block stays unwritten."""
        if block:
            self.fill(block, self._salted(group, tag))

    def fill(self, block: int, tag: int) -> None:
        self._slots[block * self._width : (block + 1) * self._width] = [tag] * self._width

    def copy(self, source: int, target: int) -> None:
        """Copy all slots of a block."""
        self.put_slots(target, self.slots(source))

    def discard(self) -> None:
        """Lose all KV."""
        self._slots = [0] * len(self._slots)

    def slots(self, block: int) -> Sequence[int]:
        """All slots of a block, as they are stored."""
        return self._slots[block * self._width : (block + 1) * self._width]

    def put_slots(self, block: int, slots: Sequence[int]) -> None:
        """Store all slots of a block; none: as those of a block that was never written."""
        self._slots[block * self._width : (block + 1) * self._width] = slots or [0] * self._width

    def _salted(self, group: int, tag: int) -> int:
        return tag ^ (SALT * group & TAG_MASK) if tag else 0
