"""The blocks that the release's pool hands out, takes back and evicts, with their owners."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.engines.vllm.core import BuiltCore
from swarden.harness.engines.vllm.device import POOL
from swarden.invariants.events import HANDOVER_KIND, LOAD_KIND, REQUEST_KIND, TREE, Owner
from swarden.invariants.view import FENCE, FREE

ENDED = (LOAD_KIND, HANDOVER_KIND)  # the owners of what requests that have ended keep


class Moves:
    """The owner of each block by the moves so far, all of which are reported.

    A block belongs to the request that took it until it is hashed, then to the cache.  Hashes are given when a pass is
    scheduled, before it writes: the change of hands is reported by `settle`, after the writes.
    """

    def __init__(self, built: BuiltCore, notice: Callable[[NamedTuple], None], owner: Callable[[int], Owner]) -> None:
        self._built, self._notice, self._owner = built, notice, owner
        self.owners = dict.fromkeys((block.block_id for block in built.pool.blocks[1:]), FREE)
        self._request = 0  # for which the manager works
        pool, manager = built.pool, built.manager
        for name, wrapper in (
            ("get_new_blocks", self._take),
            ("free_blocks", self._free),
            ("_maybe_evict_cached_block", self._evict),
        ):
            setattr(pool, name, partial(wrapper, getattr(pool, name)))
        for name in ("allocate_slots", "free"):
            setattr(manager, name, partial(self._for_a_request, getattr(manager, name)))
        if hasattr(manager, "pop_blocks_for_free"):
            manager.pop_blocks_for_free = partial(self._fence, manager.pop_blocks_for_free)

    def settle(self) -> None:
        """Report the blocks that changed hands without a take or a free."""
        holders = self.holders()
        given: dict[tuple[Owner, Owner], list[int]] = {}
        for block in self._built.pool.blocks[1:]:
            unit = block.block_id
            was, owner = self.owners[unit], owner_of(block, holders.get(unit, ()), self._owner)
            if was != owner and was not in (FREE, FENCE) and owner is not None:
                given.setdefault((was, owner), []).append(unit)
                self.owners[unit] = owner
        for (was, owner), units in given.items():
            if owner == FREE:
                self._notice(seen.Freed(POOL, tuple(units), was, "reset", 0))
            else:
                self._notice(seen.Given(POOL, tuple(units), was, owner))

    def holders(self) -> dict[int, list[int]]:
        """By block, the requests whose tables have it, once for each place in a table."""
        found: dict[int, list[int]] = {}
        for table in self._built.tables:
            for rid, blocks in table.req_to_blocks.items():
                for block in blocks:
                    if not block.is_null:
                        found.setdefault(block.block_id, []).append(self._built.number_of(rid))
        return found

    def _for_a_request(self, original: Callable[..., Any], request: Any, *args: Any, **kwargs: Any) -> Any:
        before, self._request = self._request, self._built.number_of(request.request_id)
        try:
            return original(request, *args, **kwargs)
        finally:
            self._request = before

    def _fence(self, original: Callable[..., Any], request: Any) -> Any:
        """The scheduler keeps the blocks of a request until the passes in flight have completed."""
        blocks = original(request)
        units = [one.block_id for one in blocks if one.block_hash is None and one.ref_cnt == 1 and not one.is_null]
        owners = {self.owners[unit] for unit in units}
        for owner in sorted(owners):
            mine = tuple([unit for unit in units if self.owners[unit] == owner])
            self._notice(seen.Freed(POOL, mine, owner, "deferred", self._built.scheduler.sched_step_seq))
        self.owners.update(dict.fromkeys(units, FENCE))
        return blocks

    def _take(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        blocks = original(*args, **kwargs)
        self._report(seen.Taken, [block.block_id for block in blocks], Owner(REQUEST_KIND, self._request))
        return blocks

    def _report(self, kind: Any, units: Sequence[int], owner: Owner) -> None:
        if units:
            more = ("freed", 0) if kind is seen.Freed else ()
            self._notice(kind(POOL, tuple(units), owner, *more))
            self.owners.update(dict.fromkeys(units, FREE if kind is seen.Freed else owner))

    def _free(self, original: Callable[..., Any], ordered_blocks: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
        blocks = list(ordered_blocks)
        result = original(blocks, *args, **kwargs)
        by_owner: dict[Owner, list[int]] = {}
        for block in blocks:
            unit = block.block_id
            if block.is_null or block.ref_cnt > 0:
                continue
            owner = self.owners[unit]
            if block.block_hash is not None:
                if owner != TREE:
                    self._notice(seen.Given(POOL, (unit,), owner, TREE))
                    self.owners[unit] = TREE
            elif owner == FENCE:
                self.owners[unit] = FREE
            else:
                is_own = owner == TREE or owner.kind in ENDED or not self._request
                by_owner.setdefault(owner if is_own else Owner(REQUEST_KIND, self._request), []).append(unit)
        for owner, units in by_owner.items():
            self._report(seen.Freed, units, owner)
        return result

    def _evict(self, original: Callable[..., Any], block: Any, *args: Any, **kwargs: Any) -> Any:
        is_evicted = original(block, *args, **kwargs)
        if is_evicted and block.ref_cnt == 0:
            self._report(seen.Freed, [block.block_id], self.owners[block.block_id])
        return is_evicted


def owner_of(block: Any, holders: Sequence[int], owner: Callable[[int], Owner]) -> Owner | None:
    """The owner of a block by the facts: the cache, the request that has it in its table, or none."""
    if block.block_hash is not None or len(holders) > 1:
        return TREE
    if holders:
        return owner(holders[0])
    return FREE if block.ref_cnt == 0 else None
