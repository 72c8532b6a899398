"""The levels of the check of a running server."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.foreign.attached import levels
from swarden.harness.engines.foreign.attached.levels import AttachedLevel
from swarden.harness.engines.vllm import reports
from swarden.harness.engines.vllm.adapter import REPORTED
from swarden.harness.engines.vllm.attached.live import config_of
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.capture import VllmCapture
from swarden.harness.engines.vllm.core import BuiltCore
from swarden.harness.engines.vllm.device import POOL
from swarden.harness.engines.vllm.moves import Moves
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.requests import VllmRequests
from swarden.harness.engines.vllm.runner import Hooks, Runner
from swarden.harness.strict.owners import OwnerTable, wrongly_owned_unit
from swarden.invariants.events import REQUEST_KIND, Owner
from swarden.invariants.laws.memory.pools import pools_conserve_units, unbalanced
from swarden.invariants.view import FENCE, FREE, Holding, PoolView, Snapshot
from swarden.invariants.violation import Violation

OF_THE_PORT = frozenset(
    kind.__name__
    for kind in (
        seen.Fired,
        seen.Loaded,
        seen.Paused,
        seen.Proposed,
        seen.Read,
        seen.Rejected,
        seen.Resumed,
        seen.Verified,
    )
)
UNREPORTED = seen.ALL_EVENTS - REPORTED | OF_THE_PORT


class Sums(AttachedLevel):
    """After each turn, the free blocks by the pool's counter and the blocks in tables must be all blocks.

    The cost is a pass over the block tables of the requests.
    """

    def __init__(self, built: BuiltCore) -> None:
        self._built, self._capacity = built, len(built.pool.blocks) - 1

    def turn_ended(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        held: dict[int, Owner] = {}
        for owner, block in in_tables(self._built):
            held.setdefault(block.block_id, owner)
        num_free = self._built.pool.get_num_free_blocks()
        if num_free + len(held) == self._capacity:
            return ()
        units: dict[Owner, list[int]] = {}
        for unit, owner in held.items():
            units.setdefault(owner, []).append(unit)
        holdings = [Holding(owner, mine, cached=False) for owner, mine in units.items()]
        pool = PoolView(POOL, "block", self._capacity, range(num_free), (), holdings)
        return [Violation(pools_conserve_units.name, *unbalanced(pool))]


class Audit(levels.Audit):
    """Checks that only free blocks are taken, only blocks in use are freed, and blocks in tables count their readers.

    The cost is proportional to the moved blocks and to the tables of the requests.
    """

    def __init__(self, built: BuiltCore) -> None:
        super().__init__(Sums(built))
        self._built, self._table = built, OwnerTable(POOL, "block", len(built.pool.blocks) - 1)

    @property
    def _tables(self) -> Sequence[OwnerTable]:
        return (self._table,)

    def _follow(self, event: NamedTuple) -> None:
        match event:
            case seen.Taken():
                self._move(event, self._table, FREE, event.owner)
            case seen.Given():
                self._move(event, self._table, event.from_owner, event.to_owner)
            case seen.Freed():
                self._move(event, self._table, event.owner, FENCE if event.after else FREE)

    def _compare(self) -> None:
        places: dict[int, list[Owner]] = {}
        for owner, block in in_tables(self._built):
            places.setdefault(block.block_id, []).append(owner)
        for unit, owners in places.items():
            if (readers := self._built.pool.blocks[unit].ref_cnt) < len(owners):
                wrong = owners if readers > 0 else [FREE, *owners[:1]]
                self._found.append(wrongly_owned_unit(self._table, unit, wrong))


class Census(levels.Census):
    """Captures the pool; a runner follows the passes as the stand-in for the model runner does."""

    def __init__(self, release: VllmRelease, built: BuiltCore, requests: VllmRequests, moves: Moves) -> None:
        self._config = config_of(release, built.scheduler)
        self._built, self._requests, self._moves = built, requests, moves
        self._events: list[NamedTuple] = []
        hooks = Hooks(self._events.append, self._launched, self._completed, built.number_of)
        self._runner = Runner(release, self._config, FaultPlan({}), hooks)
        self._unpaused = release.part("PauseState").UNPAUSED
        self._capture = VllmCapture(self._config, built, self._runner, moves, UNREPORTED)
        super().__init__()

    def launched(self, launched: Any) -> Sequence[NamedTuple]:
        self._runner.launch(launched)
        return self._taken_events()

    def completed(self) -> Sequence[NamedTuple]:
        self._runner.land()
        return self._taken_events()

    def resetting(self) -> None:
        """All running requests are about to be preempted; the results of their passes are dropped."""
        for request in self._requests.live.values():
            if any(request.req is one for one in self._built.scheduler.running):
                request.dropped = self._runner.last_launch

    @property
    def _has_requests(self) -> bool:
        return bool(self._requests)

    @property
    def _is_paused(self) -> bool:
        return bool(self._built.scheduler.pause_state != self._unpaused)

    def _launched(self, one: VllmPass) -> None:
        self._events += reports.launched(one, self._config, self._runner.device)

    def _completed(self, one: VllmPass) -> None:
        self._events += reports.completed(one, self._requests)

    def _taken_events(self) -> Sequence[NamedTuple]:
        events = list(self._events)
        self._events.clear()
        return events

    def _take_snapshot(self) -> Snapshot:
        return self._capture.capture(self._num_turns, self._requests, is_paused=False)


def in_tables(built: BuiltCore) -> Iterator[tuple[Owner, Any]]:
    """The blocks in the tables of the requests, with their owners."""
    for table in built.tables:
        for rid, blocks in table.req_to_blocks.items():
            owner = Owner(REQUEST_KIND, built.number_of(rid))
            for block in blocks:
                if not block.is_null:
                    yield owner, block
