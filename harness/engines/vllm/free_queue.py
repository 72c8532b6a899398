"""The free queue of the release's pool, of which a read follows the blocks that have moved."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from swarden.harness.kit.owners import UNREAD, UnitPlace
from swarden.invariants.following import Following, Units, UnitSet


class FreeQueue:
    """The `free` blocks of a queue in order, and its `evictable` ones, which are only cached.

    Free blocks come to it and go at both ends.  A read follows the links from both ends up to a block that has not
    `moved`; it follows all of them if the queue `is_unknown` or small, or a moved block may be elsewhere.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.free: Sequence[int] = ()
        self.evictable: Sequence[int] = ()
        self.moved, self.is_unknown = set[int](), True
        self._is_evictable = dict[int, bool]()  # each block in the queue

    def __contains__(self, unit: int) -> bool:
        return unit in self._is_evictable

    def read(self, places: Mapping[int, UnitPlace]) -> None:
        """Read the queue; `places` are those of blocks that something holds or counts, or that are cached."""
        if self.is_unknown or (self.moved and not self._reads_ends(places)):
            self._read_all(places)
        self.moved = set()

    def _reads_ends(self, places: Mapping[int, UnitPlace]) -> bool:
        moved, was, free = self.moved, self._is_evictable, self.free
        assert isinstance(free, Units), "read whole before"
        assert isinstance(self.evictable, UnitSet), "as free"
        num_gone = sum([was.get(unit) is False for unit in moved])  # free ones
        first = _num_moved(free[:num_gone], moved)
        end = len(free) - _num_moved(free[len(free) - num_gone + first :][::-1], moved)
        queue, blocks = self._pool.free_block_queue, self._pool.blocks
        front = self._units(queue.fake_free_list_head, "next_free_block", moved)
        left = moved.difference(front)
        back = self._units(queue.fake_free_list_tail, "prev_free_block", left)[::-1]
        left.difference_update(back)
        num_left = len(was) - len(was.keys() & moved) + len(front) + len(back)
        if (
            first + len(free) - end != num_gone
            or num_left != queue.num_free_blocks
            or any(blocks[unit].next_free_block is not None for unit in left)
        ):
            return False
        gone = [unit for unit in moved if was.pop(unit, False)]
        was.update([(unit, places.get(unit) == UNREAD) for unit in (*front, *back)])
        self.free = free.following(
            first, end, [unit for unit in back if not was[unit]], [unit for unit in front if not was[unit]]
        )
        self.evictable = self.evictable.following(gone, [unit for unit in (*front, *back) if was[unit]])
        return True

    def _read_all(self, places: Mapping[int, UnitPlace]) -> None:
        """Follow the links; a cycle ends the walk after every block."""
        count, queue = len(self._pool.blocks), self._pool.free_block_queue
        units = self._units(queue.fake_free_list_head, "next_free_block", range(count))
        self._is_evictable = {unit: places.get(unit) == UNREAD for unit in units}
        is_small = count <= Following.LEAST
        self.is_unknown = is_small or len(units) > len(self._is_evictable)
        free = [unit for unit in units if not self._is_evictable[unit]]
        evictable = sorted([unit for unit, is_evictable in self._is_evictable.items() if is_evictable])
        if is_small or self.free != free:
            self.free = free if is_small else Units(free)
        if is_small or self.evictable != evictable:
            self.evictable = evictable if is_small else UnitSet(evictable)

    def _units(self, end: Any, link: str, wanted: Any) -> list[int]:
        """The blocks from an end of the queue on that are `wanted`."""
        units, block = list[int](), getattr(end, link)
        while block is not None and block.block_id in wanted and len(units) < len(wanted):
            units.append(block.block_id)
            block = getattr(block, link)
        return units


def _num_moved(units: tuple[int, ...], moved: set[int]) -> int:
    return len([*takewhile(moved.__contains__, units)])
