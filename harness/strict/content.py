"""The level above the census: what each slot holds, by the prefix that it was written for and a checksum of its bytes.

    SWARDEN_STRICT_CONTENT_SHARE=1     the share of the slots that are compared, above 0 and at most 1

The share holds for the slots that passes read and for the pages that are swept; copies are always compared.
"""

from collections.abc import Callable, Mapping, Sequence

from swarden.engine_under_test.engine import Engine
from swarden.harness.core.errors import UsageError
from swarden.harness.strict.census import Census
from swarden.harness.strict.check import Handler
from swarden.harness.strict.copied_content import CopiedContent
from swarden.harness.strict.evidence import Evidence
from swarden.harness.strict.outside import Outside
from swarden.harness.strict.pass_content import PassContent
from swarden.harness.strict.prefixes import Prefixes
from swarden.harness.strict.tables import Tables
from swarden.invariants import events
from swarden.invariants.violation import Violation

VARIABLE = "SWARDEN_STRICT_CONTENT_SHARE"
LEAST_SHARE = 1e-6
SWEPT_PAGES = 64  # of each pool in a step, at share 1


def share_of(environment: Mapping[str, str]) -> float:
    """The share in the environment, 1 by default; raises UsageError for a value that is no share."""
    value = environment.get(VARIABLE) or "1"
    try:
        share = float(value)
    except ValueError:
        share = 0.0
    if not LEAST_SHARE <= share <= 1:
        raise UsageError(f"{VARIABLE}: {value!r} is no share; want a number from {LEAST_SHARE:f} to 1")
    return share


class Content:
    """Compares what is read with what was written there, and checks all invariants as the census does.

    Compared are the slots that a launched pass, a transfer or a swap reads, both ends of a finished copy, and at the
    end of each step `num_swept` pages of each pool in turn.  With a share below 1 a pass compares about that part of
    its slots.
    The comparisons are events of the census, so the violations of a step are reported together.
    """

    def __init__(self, share: float, *, num_swept: int | None = None) -> None:
        self._census = Census()
        self._period = round(1 / share)
        self._num_swept = max(1, round(SWEPT_PAGES * share)) if num_swept is None else num_swept

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Handler]:
        self._engine = engine
        self._tables, prefixes = Tables(engine.memory, self._census.note), Prefixes()
        handlers = dict(self._census.attach(engine, outside))
        own: dict[type, Callable[..., None]] = {
            events.Submitted: prefixes.submitted,
            events.Finished: prefixes.finished,
            events.Taken: self._tables.moved,
            events.Freed: self._tables.moved,
            **PassContent(engine, self._tables, prefixes, self._period).handlers,
            **CopiedContent(engine, self._tables, prefixes).handlers,
            events.StepBegan: self._step_began,
            events.StepEnded: lambda _: self._tables.sweep(self._num_swept),
        }
        return handlers | {kind: _in_turn(handler, handlers.get(kind)) for kind, handler in own.items()}

    def evidence(self) -> Evidence:
        return self._census.evidence()

    def _step_began(self, _event: events.StepBegan) -> None:
        """Have the state checked if a row or a peer changed since the last check, before a pass reads by it."""
        last, memory = self._census.last, self._engine.memory
        rows = {record.row: record.table for record in last.records or ()}
        peers_are_same = all(one.peers == memory.ledgers.peers[one.to_pool] for one in last.peer_maps or ())
        rows_are_same = all(
            memory.table.read(record.row, 0, len(record.handles)) == rows.get(record.row)
            for record in self._engine.scheduler.custody.with_row
        )
        self._census.is_due = self._census.is_due or not (peers_are_same and rows_are_same)


def _in_turn(first: Callable[..., None], second: Handler | None) -> Handler:
    """One handler for two, of which the second finds violations."""

    def handle(event: events.Event) -> Sequence[Violation] | None:
        first(event)
        return second(event) if second is not None else None

    return handle
