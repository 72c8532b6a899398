"""What our engine tells, as the events that invariants judge: types of the same name, with the same fields."""

import inspect
from types import ModuleType
from typing import Any, NamedTuple

import engine_under_test.events
import fakes.forward
import invariants.events
from harness.core.origins import EngineCode

CODE = EngineCode("engine_under_test", "engine_under_test.pools", frozenset({"_tell", "_notice"}))


def _types_of(module: ModuleType) -> dict[str, Any]:
    kinds = inspect.getmembers(module, inspect.isclass)
    return {name: kind for name, kind in kinds if kind.__module__ == module.__name__}


SEEN = _types_of(invariants.events)
OF_THE_ENGINE = _types_of(engine_under_test.events)
TOLD = (*OF_THE_ENGINE.values(), fakes.forward.Read, fakes.forward.Written, *SEEN.values())
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
