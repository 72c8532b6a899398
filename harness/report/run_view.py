"""One run as the template of its page needs it: the ops beside the pools, the life of the failing page, the tree."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from swarden.harness.core.driver import Driver, Failure, Moment
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import run_log
from swarden.harness.report.event_text import op_text
from swarden.harness.report.heading import configuration_line, engine_name, failed_line, opening_lines, request_lines
from swarden.harness.report.history import HistoryEntry, entries_of, nodes_below, parents_of
from swarden.harness.report.story import StoryLine, StoryPart, expected_lines, failure_lines, replay_line
from swarden.harness.report.timeline import ABSENT, Row, SubjectState, Timeline, subjects_of, timeline_of, written
from swarden.harness.report.wording import conservation_line, equation_text, state_text, subject_text
from swarden.invariants.conservation import Conservation
from swarden.invariants.view import NodeView, Snapshot
from swarden.invariants.violation import NODE, Ref

MAX_ROWS = 2000  # of a page, the last
MAX_NODES = 400  # of a tree


class PoolColumn(NamedTuple):
    """A pool of an engine; its capacity is a full bar."""

    engine: int
    pool: str
    capacity: int


class Bar(NamedTuple):
    """The units of a pool that are not free after a row, by kind of owner."""

    counts: Mapping[str, int]
    excess: int  # of the terms of its equation over the capacity
    title: str
    is_new: bool  # its engine acted in the row


class Mark(NamedTuple):
    """The state of a subject after a row, and the events of the row that had an effect on it."""

    state: SubjectState
    is_new: bool
    entries: Sequence[HistoryEntry]


class Shown(NamedTuple):
    """A row of the table."""

    row: Row
    op: str  # "" if the row above is of the same op
    is_noop: bool = False
    has_failed: bool = False
    marks: Sequence[Mark] = ()
    bars: Sequence[Bar] = ()


class NodePart(NamedTuple):
    """One component of a node."""

    pool: str
    units: Sequence[int]
    is_live: bool
    locks: int
    copies: Sequence[int]


class Branch(NamedTuple):
    """A node of the tree, below `depth` others."""

    depth: int
    node: NodeView
    parts: Sequence[NodePart]


class EngineView(NamedTuple):
    """The last state of an engine; `branches` are the nodes of its tree, each after its parent."""

    name: str
    configuration: str
    requests: Sequence[str] = ()
    equations: Sequence[str] = ()
    branches: Sequence[Branch] = ()
    num_nodes: int = 0
    state: str = ""


@dataclass(frozen=True)
class RunView:
    """A run; `subjects` are those of its failure, and `units` the pool and the id of each subject that is a unit."""

    name: str
    verdict: str
    heading: Sequence[str]
    engines: Sequence[EngineView]
    rows: Sequence[Shown]
    num_rows: int
    story: Sequence[StoryLine]
    failure: Failure | None = None
    claim: str = ""
    subjects: Sequence[str] = ()
    units: frozenset[tuple[str, int]] = frozenset()
    columns: Sequence[PoolColumn] = ()
    was_run: bool = True

    @property
    def legend(self) -> list[str]:
        """The kinds of owners that a bar shows."""
        return list(dict.fromkeys(kind for row in self.rows for bar in row.bars for kind in bar.counts))


def view_of(log: OpLog, path: Path) -> RunView:
    """The view of a log, which is run twice: to find the subjects of its failure, and to follow them."""
    if not target_for(log.header).is_repeatable:
        return _written_view(log, path)
    header, failed = log.header, run_log(log).failure
    refs = subjects_of(failed, header.expected) if failed is not None else []
    timeline, driver = timeline_of(log, timeline=Timeline(refs, failed.engine if failed is not None else 0))
    failure = driver.failure
    lines = failure_lines(failure, expected=header.expected) if failure is not None else []
    columns = _columns(timeline)
    return RunView(
        name=path.name,
        verdict=failed_line(failure) if failure is not None else f"no failure in {len(log.ops)} ops",
        failure=failure,
        claim=next((line.text for line in lines if line.part is StoryPart.CLAIM), ""),
        heading=opening_lines(header, failure.engine if failure is not None else None),
        engines=[_engine_view(header, driver, engine) for engine in range(len(header.configs))],
        subjects=[subject_text(ref) for ref in refs],
        units=frozenset((ref.pool, ref.id) for ref in refs if ref.pool),
        columns=columns,
        rows=list(_rows(timeline, columns, failure))[-MAX_ROWS:],
        num_rows=len(timeline.rows),
        story=[*lines, replay_line(path)],
    )


def _written_view(log: OpLog, path: Path) -> RunView:
    """The view of a log that is not run."""
    rows = [Shown(row, op_text(row.op)) for row in written(log)]
    engine = EngineView("", configuration_line(log.header, 0))
    heading, story = opening_lines(log.header), expected_lines(log.header, path)
    verdict, last = f"{len(rows)} ops, not run", rows[-MAX_ROWS:]
    return RunView(path.name, verdict, heading, [engine], last, len(rows), story, was_run=False)


def _columns(timeline: Timeline) -> list[PoolColumn]:
    """The pools of which any unit was used in the run, engine by engine."""
    columns = dict[PoolColumn, bool]()  # whether it was used
    for row in timeline.rows:
        for pool in row.pools:
            column = PoolColumn(row.engine, pool.name, pool.terms.capacity)
            columns[column] = columns.get(column, False) or bool(_counts(pool.terms))
    return sorted([column for column, is_used in columns.items() if is_used], key=lambda column: column.engine)


def _counts(terms: Conservation) -> dict[str, int]:
    """The units that are not free, by kind of owner; those of the tree are protected or evictable."""
    counts: dict[str, int] = {}
    for owner, count in terms.uncached.items():
        counts[owner.kind] = counts.get(owner.kind, 0) + count
    counts |= {"protected": terms.protected, "evictable": terms.evictable, "fenced": terms.fenced}
    return {kind: count for kind, count in counts.items() if count}


def _rows(timeline: Timeline, columns: Sequence[PoolColumn], failure: Failure | None) -> Iterator[Shown]:
    """The rows of all engines in order."""
    lives = _Lives(timeline.subjects, failure)
    bars = [Bar({}, 0, "", is_new=False) for _ in columns]
    number = 0
    for row, moment in zip_longest(timeline.rows, failure.history if failure is not None else ()):
        uses = {pool.name: pool for pool in row.pools}
        bars = [
            Bar(_counts(use.terms), use.terms.excess, equation_text(use.terms), is_new=True)
            if column.engine == row.engine and (use := uses.get(column.pool))
            else bar._replace(is_new=False)
            for column, bar in zip(columns, bars, strict=True)
        ]
        yield Shown(
            row=row,
            op=op_text(row.op) if row.number != number else "",
            is_noop=row.number in timeline.noops,
            has_failed=failure is not None and row is timeline.rows[-1],
            marks=lives.marks(row, moment),
            bars=bars,
        )
        number = row.number


class _Lives:
    """The states of the subjects of a failure, row by row."""

    def __init__(self, subjects: Sequence[Ref], failure: Failure | None) -> None:
        self._subjects = subjects
        self._states = [ABSENT] * len(subjects)
        nodes, moments = (failure.transition.after.nodes or (), failure.history) if failure is not None else ((), ())
        parents = parents_of(nodes, moments)
        self._below = [nodes_below(ref.id, parents) if ref.kind == NODE else () for ref in subjects]

    def marks(self, row: Row, moment: Moment | None) -> list[Mark]:
        """The states of the subjects after a row; a row of another engine changes none."""
        states = row.states or [state._replace(reads=()) for state in self._states]
        marks = [
            Mark(
                state,
                state[:2] != last[:2],
                entries_of(ref, moment, below) if row.states and moment is not None else (),
            )
            for ref, below, state, last in zip(self._subjects, self._below, states, self._states, strict=True)
        ]
        self._states = list(states)
        return marks


def _engine_view(header: Header, driver: Driver, engine: int) -> EngineView:
    state = driver.snapshot(engine)
    return EngineView(
        name=engine_name(header, engine) if len(header.configs) > 1 else "",
        configuration=configuration_line(header, engine),
        requests=list(request_lines(driver.systems[engine].reference)),
        equations=[conservation_line(pool) for pool in state.pools],
        branches=list(_branches(state))[:MAX_NODES],
        num_nodes=len(state.nodes or ()),
        state=state_text(state),
    )


def _branches(state: Snapshot) -> Iterator[Branch]:
    """The nodes of the tree, each after its parent; then the nodes to which no path from a root leads."""
    seen: set[int] = set()
    waiting = [(0, node) for node in (*reversed(state.nodes or ()), *reversed(state.children.get(0, ())))]
    while waiting:
        depth, node = waiting.pop()
        if node.id not in seen:
            seen.add(node.id)
            yield Branch(depth, node, _parts(state, node))
            waiting += [(depth + 1, child) for child in reversed(state.children.get(node.id, ()))]


def _parts(state: Snapshot, node: NodeView) -> list[NodePart]:
    copies = node.copies or [()] * len(node.units)
    return [
        NodePart(component.pool, [unit for unit in units if unit], live, locks, [unit for unit in copied if unit])
        for component, units, live, locks, copied in zip(
            state.components, node.units, node.live, node.locks, copies, strict=True
        )
    ]
