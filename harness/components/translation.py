"""What our engine tells, as the events that invariants judge: types of the same name, with the same fields."""

import inspect
from typing import Any, NamedTuple, get_args

import fakes.forward
import invariants.events as seen
from engine_under_test.events import Event
from harness.core.origins import EngineCode

CODE = EngineCode("engine_under_test", "engine_under_test.pools", frozenset({"_tell", "_notice"}))

SEEN: dict[str, type[Any]] = {
    name: kind for name, kind in inspect.getmembers(seen, inspect.isclass) if kind.__module__ == seen.__name__
}
TOLD = (*get_args(Event), fakes.forward.Read, fakes.forward.Written, *SEEN.values())
TRANSLATION = {kind: SEEN[kind.__name__] for kind in TOLD if kind.__name__ in SEEN}
MISFITS = [kind.__name__ for kind, theirs in TRANSLATION.items() if kind._fields != theirs._fields]
assert not MISFITS, f"events with other fields than the invariants want: {', '.join(MISFITS)}"


def translated(event: tuple[object, ...]) -> NamedTuple:
    """An event that the invariants judge."""
    kind: type[NamedTuple] = TRANSLATION[type(event)]
    return tuple.__new__(kind, event)


def judged(event: tuple[object, ...]) -> "NamedTuple | None":
    """An event as the invariants judge it; None where they do not: what was asked, and what a snapshot shows."""
    kind: type[NamedTuple] | None = TRANSLATION.get(type(event))
    return None if kind is None else tuple.__new__(kind, event)
