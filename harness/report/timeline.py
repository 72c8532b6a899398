"""A run as rows: an op, its results and the occupancy of the pools after each transition; and the lives of subjects."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from swarden.harness.core.driver import Driver, Failure
from swarden.harness.core.errors import text_of
from swarden.harness.core.fingerprint import fingerprint
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Drain, Op, Step
from swarden.harness.core.replay import Observe, run_log
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.event_text import RESULTS, event_text
from swarden.harness.report.history import refs_in_message
from swarden.harness.report.story import refs_of
from swarden.invariants import events as seen
from swarden.invariants.conservation import Conservation, conservation_of
from swarden.invariants.events import REQUEST_KIND, Read
from swarden.invariants.transition import Transition
from swarden.invariants.view import RecordView, Snapshot
from swarden.invariants.violation import NODE, WHOLES, Ref

MAX_SUBJECTS = 4
PLACES = ("waiting", "chunked", "running")


class Broken(StrEnum):
    """The kinds of states in which a unit does not have exactly one owner."""

    LEAKED = "leaked"
    SHARED = "shared"


class SubjectState(NamedTuple):
    """The state of a subject after a transition, and the passes that read it in that transition."""

    kind: str  # of a unit's owner, the place of a request, live or tombstone for a node; "" for no subject
    text: str
    reads: Sequence[str] = ()


ABSENT = SubjectState("", "")


class PoolOccupancy(NamedTuple):
    """The occupancy of a pool."""

    name: str
    terms: Conservation

    @property
    def used(self) -> int:
        return self.terms.capacity - self.terms.free


class Row(NamedTuple):
    """An op with its number, from 1, and figures of an engine after one transition of the op."""

    number: int
    op: Op
    engine: int
    step: int
    places: Sequence[int]  # the requests of each of PLACES; () if the engine does not show them
    pools: Sequence[PoolOccupancy]
    results: Sequence[str] = ()
    states: Sequence[SubjectState] = ()  # of the timeline's subjects, if it is a row of their engine
    raised: str = ""  # the type of the engine's error in the op


@dataclass
class Timeline:
    """The rows of a run so far; `subjects` are those of one engine, `noops` the numbers of the ops without effect."""

    subjects: Sequence[Ref] = ()
    subjects_engine: int = 0
    rows: list[Row] = field(default_factory=list)
    noops: set[int] = field(default_factory=set)
    _num_noops: int = 0

    def add(self, driver: Driver, change: Transition) -> None:
        self.note_noop(driver, len(driver.ops) - 1)
        self.rows.append(self._row(driver, driver.acting_system, change))

    def add_raised(self, driver: Driver) -> None:
        """Add a row for the op in which the engine raised an error, with the last state before the error."""
        if driver.failure is not None and driver.failure.error is not None:
            row = self._row(driver, driver.failure.engine, driver.failure.transition)
            self.rows.append(row._replace(raised=type(driver.failure.error).__name__))

    def note_noop(self, driver: Driver, number: int) -> None:
        """Note the op with this number if it was the last to be applied and had no effect."""
        if (num_noops := driver.counts.noops.total()) > self._num_noops:
            self.noops.add(number)
            self._num_noops = num_noops

    def _row(self, driver: Driver, engine: int, change: Transition) -> Row:
        """The row of a transition; it does not refer to the state, which can be large."""
        return Row(
            number=len(driver.ops),
            op=driver.ops[-1],
            engine=engine,
            step=change.after.step,
            places=_places(change.after),
            pools=[PoolOccupancy(pool.name, conservation_of(pool)) for pool in change.after.pools],
            results=_results(change),
            states=[state_of(ref, change) for ref in self.subjects] if engine == self.subjects_engine else (),
        )


def timeline_of(
    log: OpLog, *, timeline: Timeline | None = None, observe: Observe = lambda *_: None
) -> tuple[Timeline, Driver]:
    """Run a log; `timeline`, if given, gets the rows.  The history of a failure has one moment for each row."""
    timeline = timeline or Timeline()

    def add(driver: Driver, change: Transition) -> None:
        timeline.add(driver, change)
        observe(driver, change)

    driver = run_log(log, observe=add, tracer_of=decision_tracer)
    timeline.note_noop(driver, len(driver.ops))
    timeline.add_raised(driver)
    return timeline, driver


def written(log: OpLog) -> list[Row]:
    """The ops of a log that is not run, because its engine is a server, each with the step that sends it."""
    steps = accumulate((isinstance(op, Step | Drain) for op in log.ops), initial=1)
    return [
        Row(number, op, op.engine, step, (), ())
        for number, (op, step) in enumerate(zip(log.ops, steps, strict=False), 1)
    ]


def _places(state: Snapshot) -> list[int]:
    places = [request.place for request in state.requests or ()]
    return [places.count(place) for place in PLACES] if state.requests is not None else []


def _results(change: Transition) -> list[str]:
    """The results of a transition, each once; a pass is shown with its entries."""
    texts = []
    for event in change.events:
        if text := event_text(event, change.before, RESULTS):
            entries = event.entries if isinstance(event, seen.Launched) else ()
            computed = ", ".join(f"r{request} [{start}, {end})" for request, start, end in entries)
            texts.append(f"{text}{f': {computed}' if computed else ''}")
    return list(dict.fromkeys(texts))


def subjects_of(failure: Failure, expected: str | None = None) -> list[Ref]:
    """The units that a failure names, then requests and nodes; subjects with the `expected` fingerprint come first."""
    if failure.error is not None:
        refs = refs_in_message(text_of(failure.error), [pool.name for pool in failure.transition.after.pools])
    else:
        violations = sorted(failure.violations, key=lambda violation: fingerprint(violation) != expected)
        refs = [ref for violation in violations for ref in refs_of(violation)]
    units = [ref for ref in refs if ref.pool and ref.kind not in WHOLES]
    others = [ref for ref in refs if ref.kind in (REQUEST_KIND, NODE) and ref.id]
    return list(dict.fromkeys([*units, *others]))[:MAX_SUBJECTS]


def state_of(ref: Ref, change: Transition) -> SubjectState:
    after = change.after
    if ref.pool in after.pool_by_name:
        return _state_of_unit(ref, after)._replace(reads=_reads_of(ref, change))
    if ref.kind == REQUEST_KIND:
        request = after.request_by_id.get(ref.id)
        return SubjectState(request.place, request.place) if request is not None else ABSENT
    node = after.node_by_id.get(ref.id) if ref.kind == NODE else None
    if node is None:
        return ABSENT
    dead = [component.pool for component, live in zip(after.components, node.live, strict=True) if not live]
    return SubjectState("tombstone", f"tombstone in {', '.join(dead)}") if dead else SubjectState("live", "live")


def _state_of_unit(ref: Ref, state: Snapshot) -> SubjectState:
    owners = state.pool(ref.pool).owners_by_unit().get(ref.id, [])
    if len(owners) == 1:
        return SubjectState(owners[0].kind, str(owners[0]))
    return (
        SubjectState(Broken.SHARED, " and ".join(map(str, owners))) if owners else SubjectState(Broken.LEAKED, "leaked")
    )


def _reads_of(ref: Ref, change: Transition) -> list[str]:
    """The passes that read a unit, as far as the engine reports reads."""
    reads = [
        f"read by request r{read.request_id}, pass {read.launch}"
        for read in change.events
        if isinstance(read, Read) and read.pool == ref.pool and ref.id in _units_read(read, change)
    ]
    return list(dict.fromkeys(reads))


def _units_read(read: Read, change: Transition) -> Sequence[int]:
    """The units that are read: of the pass, if it was in flight before, else of the request's record."""
    view = change.before.launch_by_id.get(read.launch)
    for entry, units in zip(view.entries, view.units, strict=True) if view is not None else ():
        if entry[0] == read.request_id:
            return units[read.component]
    records: list[RecordView] = [
        state.record_by_request[read.request_id]
        for state in (change.after, change.before)
        if read.request_id in state.record_by_request
    ]
    if not records:
        return ()
    page_size = change.after.page_sizes[read.component]
    return records[0].units[read.component][read.start // page_size : -(-(read.start + len(read.tags)) // page_size)]
