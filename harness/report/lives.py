"""The life of a subject of a failure: the state of a page, a request or a node after each transition."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from swarden.harness.core.driver import Failure
from swarden.harness.core.errors import text_of
from swarden.harness.core.fingerprint import fingerprint
from swarden.harness.report.history import refs_in_message
from swarden.harness.report.story import refs_of
from swarden.invariants.events import REQUEST_KIND, Read
from swarden.invariants.transition import Transition
from swarden.invariants.view import RecordView, Snapshot
from swarden.invariants.violation import NODE, WHOLES, Ref

MAX_SUBJECTS = 4


class Broken(StrEnum):
    """The kinds of states in which a unit does not have exactly one owner."""

    LEAKED = "leaked"
    SHARED = "shared"


class SubjectState(NamedTuple):
    """The state of a subject after a transition, and the passes that read it in that transition.

    `kind` is the kind of a unit's owner, the place of a request, or live or tombstone for a node; "" if the subject is
    absent.
    """

    kind: str
    text: str
    reads: Sequence[str] = ()


ABSENT = SubjectState("", "")


def subjects_of(failure: Failure, expected: str | None = None) -> list[Ref]:
    """The units that a failure names, then requests and nodes; subjects with the `expected` fingerprint come first."""
    if failure.error is not None:
        refs = refs_in_message(text_of(failure.error), [pool.name for pool in failure.transition.after.pools])
    else:
        violations = sorted(failure.violations, key=lambda one: fingerprint(one) != expected)
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
    """The units that are read: those of the pass if it was in flight before, else those of the request's record."""
    view = change.before.launch_by_id.get(read.launch)
    for entry, units in zip(view.entries, view.units, strict=True) if view is not None else ():
        if entry[0] == read.request_id:
            return units[read.component]
    known: list[RecordView] = [
        state.record_by_request[read.request_id]
        for state in (change.after, change.before)
        if read.request_id in state.record_by_request
    ]
    if not known:
        return ()
    page_size = change.after.page_sizes[read.component]
    return known[0].units[read.component][read.start // page_size : -(-(read.start + len(read.tags)) // page_size)]
