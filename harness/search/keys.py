"""Second keys of failures: they keep failures with one fingerprint apart that no fix of a known bug cures.

A key has functions, each with the text of a statement, and no line number, so that it is the same in another release.
"""

import hashlib
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from swarden.harness.core.driver import DrainStuck, Driver, Failure, Moment
from swarden.harness.core.event_log import TracerOf
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.origins import PLACE, EngineCode
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import run_log
from swarden.harness.report.decisions import DecisionTracer, decision_tracer
from swarden.harness.report.history import entries_of, nearest
from swarden.harness.report.story import KEPT_WAITING, refs_of
from swarden.invariants.events import REQUEST_KIND, Freed, Given, Locked, LocksCounted, Taken, Unlocked
from swarden.invariants.laws.lifecycle.progress import ProgressCode
from swarden.invariants.transition import Transition

LEFT_OUT = (ProgressCode.STUCK, *KEPT_WAITING)
OF_A_STATE = "a state"
MOVES = (Taken, Given, Freed, Locked, Unlocked, LocksCounted)
LAST_STEPS = 2  # that are traced for the branches
BEFORE_HASH, HASH_LEN = "~", 6  # in the name of a kind; hex digits

Key = frozenset[str]
NO_KEY = Key()


def kind_of(fingerprint: str, key: Key) -> str:
    """The name of the failures with a fingerprint and a key."""
    digest = hashlib.sha256("\n".join(sorted(key)).encode()).hexdigest()
    return f"{fingerprint}{BEFORE_HASH}{digest[:HASH_LEN]}" if key else fingerprint


def is_of(key: Key, known: Key) -> bool:
    """Whether a failure with a key is of the kind of a known one: a run with more requests has further statements."""
    return key == known or (known != NO_KEY and known <= key)


def leaves_out(failure: Failure) -> bool:
    """Whether requests are left out by the last step of a failure."""
    return isinstance(failure.error, DrainStuck) or any(violation.code in LEFT_OUT for violation in failure.violations)


def key_of(log: OpLog, failure: Failure, heartbeat: Callable[[], None]) -> Key:
    """The key of the failure of a log, which is run again and traced; NO_KEY if it does not fail so.

    It has the statements by which the last step left out requests, or the one that took, freed or locked a unit last.
    """
    target, traced = target_for(log.header), list[Driver]()
    is_left_out = leaves_out(failure)
    tracer_of: TracerOf = partial(DecisionTracer, everywhere=True) if is_left_out else decision_tracer
    since = failure.transition.after.step - LAST_STEPS if is_left_out else 0

    def observe(driver: Driver, change: Transition) -> None:
        heartbeat()
        if change.after.step >= since and not traced:
            traced.append(driver)
            for system in driver.systems:
                system.log.trace(tracer_of)

    again = run_log(log, observe=observe).failure if target.is_repeatable else None
    if again is None or not again.is_called(failure.fingerprint):
        return NO_KEY
    moments = [moment for moment in again.history if moment.system == again.engine]
    if again.frames:
        return Key([_statement(again.frames[-1], target.code)])
    return Key(_branches(again, moments) if is_left_out else _last_statement(again, moments, target.code))


def _branches(failure: Failure, moments: Sequence[Moment]) -> Iterator[str]:
    """The branches of the last step that leave out requests by name; else all, and where the oldest request is."""
    requests = {request.id: request.place for request in failure.transition.after.requests or ()}
    last = next((moment.passed_over for moment in reversed(moments) if moment.passed_over), ())
    named = [branch for branch in last if branch.request_id in requests]
    yield from (f"{_function(branch.place)}: {branch.condition}" for branch in named or last)
    if not named and requests:
        yield str(requests[min(requests)])


def _last_statement(failure: Failure, moments: Sequence[Moment], code: EngineCode) -> Iterator[str]:
    """The statement that acted last on the first unit of a violation, and whether that is a state of its request."""
    violation, after = failure.violations[0], failure.transition.after
    units = [ref for ref in refs_of(violation) if ref.pool and ref.id]
    record = after.record_by_request.get(violation.subject.id) if violation.subject.kind == REQUEST_KIND else None
    for component, held in zip(after.components, record.units if record is not None else (), strict=False):
        if component.has_states and units and units[0].id in held:
            yield OF_A_STATE
    entries = (entry for ref in units[:1] for moment in moments for entry in entries_of(ref, moment, kinds=MOVES))
    yield from [_statement(nearest(entry.origin), code) for entry in entries if entry.origin][-1:]


def _function(place: str) -> str:
    parts = PLACE.fullmatch(place)
    return f"{parts['path']} {parts['function']}" if parts else place


def _statement(place: str, code: EngineCode) -> str:
    parts = PLACE.fullmatch(place)
    if parts is None:
        return place
    module = sys.modules.get(f"{code.package}.{parts['path'].replace('/', '.')}")
    in_patch = re.compile(rf"<{re.escape(str(parts['patch']))} in .+\b{re.escape(parts['function'])}>")
    patched = filter(in_patch.fullmatch, linecache.cache)
    text = linecache.getline(next(patched, str(getattr(module, "__file__", ""))), int(parts["line"]))
    return f"{_function(place)}: {text.strip()}"
