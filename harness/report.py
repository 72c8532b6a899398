"""A failure as a person reads it: claim, evidence with owners, the page's history, the pool's equation."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.driver import Failure, Moment
from invariants.base import Violation
from invariants.catalog import CATALOG
from invariants.events import Freed, Given, Paired, Taken, Written
from invariants.pools import conservation_terms
from invariants.view import PoolView

MAX_SUBJECTS = 4  # of one invariant; the rest are counted
MAX_INVARIANTS = 3
MAX_HISTORY = 12  # newest entries of one unit
UNIT_SUBJECT = re.compile(r"^(?P<pool>\w+) (?:page|row|slot|block) (?P<unit>\d+)\b")
CLAIMS = {invariant.name: invariant.claim for invariant in CATALOG}


def failure_text(failure: Failure, path: Path | None = None) -> str:
    """The whole story of a failure; `path` is the op-log that replays it."""
    lines = [f"engine error: {type(failure.error).__name__}: {failure.error}"] if failure.error else []
    if failure.violations:
        pools = failure.transition.after.pools
        lines.append(story(failure.violations, failure.history, pools))
    if path is not None:
        lines.append(f"replay: swarden replay {path}")
    return "\n".join(lines)


def story(violations: Sequence[Violation], history: Sequence[Moment], pools: Sequence[PoolView]) -> str:
    """What does not hold, with the history of each unit and the equations of the pools."""
    lines: list[str] = []
    names = list(dict.fromkeys(violation.invariant for violation in violations))
    for name in names[:MAX_INVARIANTS]:
        lines += _invariant_lines(name, [v for v in violations if v.invariant == name], history)
    if len(names) > MAX_INVARIANTS:
        lines.append(f"and {len(names) - MAX_INVARIANTS} more: {', '.join(names[MAX_INVARIANTS:])}")
    return "\n".join([*lines, *_equations(violations, pools)])


def history_of(pool: str, unit: int, history: Sequence[Moment]) -> list[str]:
    """What happened to one unit, a line an event, oldest first."""
    lines = []
    for moment in history:
        for event in moment.events:
            deed = _deed(event, pool, unit)
            if deed:
                lines.append(f"step {moment.step:<4}  {deed}")
    return lines


def _invariant_lines(name: str, violations: Sequence[Violation], history: Sequence[Moment]) -> Iterator[str]:
    yield f"{name}: {CLAIMS[name]}"
    for violation in violations[:MAX_SUBJECTS]:
        yield f"  {violation.subject}: {violation.detail}"
        if found := UNIT_SUBJECT.match(violation.subject):
            entries = history_of(found["pool"], int(found["unit"]), history)
            if len(entries) > MAX_HISTORY:
                yield f"    … {len(entries) - MAX_HISTORY} earlier"
            yield from (f"    {entry}" for entry in entries[-MAX_HISTORY:])
    if len(violations) > MAX_SUBJECTS:
        yield f"  and {len(violations) - MAX_SUBJECTS} more"


def _equations(violations: Sequence[Violation], pools: Sequence[PoolView]) -> list[str]:
    """The conservation terms of the pools that the evidence speaks of, or of all."""
    told = " ".join(f"{violation.subject} {violation.detail}" for violation in violations)
    named = [pool for pool in pools if re.search(rf"\b{pool.name}\b", told)]
    return [conservation_terms(pool) for pool in named or pools]


def _deed(event: object, pool: str, unit: int) -> str | None:
    """What an event did to a unit; None if it did not concern it."""
    match event:
        case Taken() if event.pool == pool and unit in event.units:
            return f"taken  by {event.owner}"
        case Given() if event.pool == pool and unit in event.units:
            return f"given  by {event.from_owner} to {event.to_owner}"
        case Freed() if event.pool == pool and unit in event.units:
            fence = f", behind launch {event.after}" if event.after else ""
            return f"freed  by {event.owner}, {event.cause}{fence}"
        case Written() if event.pool == pool and unit in event.pages:
            return f"written  by request r{event.request_id}, positions {event.start} to {event.end - 1}"
        case Paired() if event.to_pool == pool and unit in event.peers:
            return f"paired  with {event.from_pool} {event.units[event.peers.index(unit)]}"
        case Paired() if event.from_pool == pool and unit in event.units:
            peer = event.peers[event.units.index(unit)]
            return f"paired  with {event.to_pool} {peer}" if peer else f"lost its {event.to_pool} peer"
    return None
