"""The level above the census: what each slot holds, by the prefix that it was written for and a checksum of its bytes.

The share of slots holds for those that passes read and for the pages that are swept; copies are always compared.
"""

from collections.abc import Sequence

from swarden.engine_under_test.engine import Engine
from swarden.harness.engines.own.content.copies import CopiedContent
from swarden.harness.engines.own.content.passes import PassContent
from swarden.harness.engines.own.content.prefixes import Prefixes
from swarden.harness.engines.own.content.tables import Tables
from swarden.harness.strict.census import Census
from swarden.harness.strict.live import Check, Evidence, Handlers, Live
from swarden.invariants import events

SWEPT_PAGES = 64  # of each pool in a step, at share 1


def content_of(engine: Engine, live: Live, share: float) -> Sequence[Check]:
    """The comparisons of this level, and the census of each step that judges them."""
    census = Census(live)
    return [Content(engine, census, share), census]


class Content:
    """Compares what is read with what was written there.

    Compared are the slots that a launched pass, a transfer or a swap reads, both ends of a finished copy, and at the
    end of each step `num_swept` pages of each pool in turn.  With a share below 1 a pass compares about that part of
    its slots.
    The comparisons are events of the census, so the violations of a step are reported together.
    """

    def __init__(self, engine: Engine, census: Census, share: float, *, num_swept: int | None = None) -> None:
        self._engine, self._census = engine, census
        self._tables, prefixes = Tables(engine.memory, census.note), Prefixes()
        num_swept = max(1, round(SWEPT_PAGES * share)) if num_swept is None else num_swept
        self.handlers: Handlers = {
            events.Submitted: prefixes.submitted,
            events.Finished: prefixes.finished,
            events.Taken: self._tables.moved,
            events.Freed: self._tables.moved,
            **PassContent(engine, self._tables, prefixes, round(1 / share)).handlers,
            **CopiedContent(engine, self._tables, prefixes).handlers,
            events.StepBegan: self._step_began,
            events.StepEnded: lambda _: self._tables.sweep(num_swept),
        }

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
