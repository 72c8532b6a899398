"""The levels of the check of a running server."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import invariants.events as seen
from harness.core.driver import Moment
from harness.core.faults import FaultPlan
from harness.core.progress import IdleSteps
from harness.engines.vllm import reports
from harness.engines.vllm.adapter import REPORTED
from harness.engines.vllm.attached.live import config_of
from harness.engines.vllm.boot import Release
from harness.engines.vllm.capture import VllmCapture
from harness.engines.vllm.core import Built
from harness.engines.vllm.device import POOL
from harness.engines.vllm.moves import Moves
from harness.engines.vllm.passes import Pass
from harness.engines.vllm.requests import Requests
from harness.engines.vllm.runner import Hooks, Runner
from harness.strict.evidence import Evidence
from harness.strict.owners import OwnerTable, misplaced, wrongly_owned_unit
from harness.strict.transitions import Transitions
from invariants.catalog import catalog_of
from invariants.laws.memory.pools import pools_conserve_units, unbalanced
from invariants.reuse import sharing
from invariants.transition import When
from invariants.view import FENCE, FREE, REQUEST_KIND, Holding, Owner, PoolView, Snapshot
from invariants.violation import Violation

MAX_MOVES = 20_000  # kept for the history of a violation
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


class Check:
    """A level. It gets the events since the call before, and returns the violations that it finds."""

    def scheduled(self, output: Any) -> Sequence[NamedTuple]:
        """The scheduler has made this output. Returns the events of its pass."""
        return ()

    def completing(self) -> Sequence[NamedTuple]:
        """The result of the oldest pass is about to be processed. Returns its events."""
        return ()

    def resetting(self) -> None:
        """All running requests are about to be preempted; the results of their passes are dropped."""

    def inputs_taken(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        return ()

    def turn_ended(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        raise NotImplementedError

    def evidence(self) -> Evidence:
        return Evidence((), ())


class Sums(Check):
    """After each turn, the free blocks by the pool's counter and the blocks in tables must be all blocks.

    The cost is a pass over the block tables of the requests.
    """

    def __init__(self, built: Built) -> None:
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


class Audit(Check):
    """Checks that only free blocks are taken, only blocks in use are freed, and blocks in tables count their readers.

    The sums are checked, too. The cost is proportional to the moved blocks and to the tables of the requests.
    """

    def __init__(self, built: Built) -> None:
        self._built, self._sums = built, Sums(built)
        self._table = OwnerTable(POOL, "block", len(built.pool.blocks) - 1)
        self._moves: deque[Moment] = deque(maxlen=MAX_MOVES)
        self._found: list[Violation] = []
        self._turn = 1

    def inputs_taken(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        for event in events:
            match event:
                case seen.Taken():
                    places = FREE, event.owner
                case seen.Given():
                    places = event.from_owner, event.to_owner
                case seen.Freed():
                    places = event.owner, FENCE if event.after else FREE
                case _:
                    continue
            self._moves.append(Moment(0, self._turn, [event]))
            self._found += misplaced(event, self._table, self._table.move(event.units, *places))
        return ()

    def turn_ended(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        self.inputs_taken(events)
        found, self._found = self._found, []
        places: dict[int, list[Owner]] = {}
        for owner, block in in_tables(self._built):
            places.setdefault(block.block_id, []).append(owner)
        for unit, owners in places.items():
            if (readers := self._built.pool.blocks[unit].ref_cnt) < len(owners):
                wrong = owners if readers > 0 else [FREE, *owners[:1]]
                found.append(wrongly_owned_unit(self._table, unit, wrong))
        self._turn += 1
        return [*found, *self._sums.turn_ended(())]

    def evidence(self) -> Evidence:
        return Evidence(list(self._moves), [self._table.view(protected=0)])


class Census(Check):
    """Checks all laws over each turn, and over the calls between two turns; there are no contracts.

    The cost is a walk over all blocks of the pool.
    """

    def __init__(self, release: Release, built: Built, requests: Requests, moves: Moves) -> None:
        self._config = config_of(release, built.scheduler)
        self._built, self._requests, self._moves = built, requests, moves
        self._events: list[NamedTuple] = []
        hooks = Hooks(self._events.append, self._launched, self._completed, built.number_of)
        self._runner = Runner(release, self._config, FaultPlan({}), hooks)
        self._unpaused = release.part("PauseState").UNPAUSED
        self._capture = VllmCapture(self._config, built, self._runner, moves, UNREPORTED)
        self._num_turns = 0
        self._idle_turns = IdleSteps()
        self._transitions = Transitions(catalog_of(frozenset()), self._found())

    def scheduled(self, output: Any) -> Sequence[NamedTuple]:
        self._runner.launch(output)
        return self._taken_events()

    def completing(self) -> Sequence[NamedTuple]:
        self._runner.land()
        return self._taken_events()

    def resetting(self) -> None:
        for request in self._requests.live.values():
            if any(request.req is one for one in self._built.scheduler.running):
                request.dropped = self._runner.last_launch

    def inputs_taken(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        return self._check(When.OP, events)

    def turn_ended(self, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        self._num_turns += 1
        if not self._requests:
            self._idle_turns.restart()
        elif self._built.scheduler.pause_state == self._unpaused:
            self._idle_turns.note(events)
        return self._check(When.STEP, events)

    def evidence(self) -> Evidence:
        return self._transitions.evidence()

    def _launched(self, one: Pass) -> None:
        self._events += reports.launched(one, self._config, self._runner.device)

    def _completed(self, one: Pass) -> None:
        self._events += reports.completed(one, self._requests)

    def _taken_events(self) -> Sequence[NamedTuple]:
        events = list(self._events)
        self._events.clear()
        return events

    def _check(self, when: When, events: Sequence[NamedTuple]) -> Sequence[Violation]:
        after = sharing(self._transitions.last, self._found())
        return self._transitions.check(when, events, after, steps_without_forward=self._idle_turns.count)

    def _found(self) -> Snapshot:
        return self._capture.capture(self._num_turns, self._requests, is_paused=False)


def in_tables(built: Built) -> Iterator[tuple[Owner, Any]]:
    """The blocks in the tables of the requests, with their owners."""
    for table in built.tables:
        for rid, blocks in table.req_to_blocks.items():
            owner = Owner(REQUEST_KIND, built.number_of(rid))
            for block in blocks:
                if not block.is_null:
                    yield owner, block
