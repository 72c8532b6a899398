"""Translates engine events to the events that invariants check: types of the same name with the same fields."""

import inspect
from types import ModuleType
from typing import Any, NamedTuple

import engine_under_test.events
import fakes.forward
import invariants.events
from harness.core.origins import EngineCode

CODE = EngineCode(
    "engine_under_test",
    "engine_under_test.pools",
    frozenset({"_report_presence", "_notice"}),
    ("fakes.forward", "fakes.proposer", "fakes.unsteady"),
)


def _types_of(module: ModuleType) -> dict[str, Any]:
    kinds = inspect.getmembers(module, inspect.isclass)
    return {name: kind for name, kind in kinds if kind.__module__ == module.__name__}


INVARIANT_EVENTS = _types_of(invariants.events)
ENGINE_EVENTS = _types_of(engine_under_test.events)
EMITTED = (*ENGINE_EVENTS.values(), fakes.forward.Read, fakes.forward.Written, *INVARIANT_EVENTS.values())
TRANSLATION = {kind: INVARIANT_EVENTS[kind.__name__] for kind in EMITTED if kind.__name__ in INVARIANT_EVENTS}
MISFITS = [kind.__name__ for kind, expected in TRANSLATION.items() if kind._fields != expected._fields]
assert not MISFITS, f"events whose fields differ from those of the invariants: {', '.join(MISFITS)}"


def translated(event: tuple[object, ...]) -> NamedTuple:
    """The event in the type that invariants check."""
    kind: type[NamedTuple] = TRANSLATION[type(event)]
    return tuple.__new__(kind, event)


def judged(event: tuple[object, ...]) -> "NamedTuple | None":
    """The translated event. None for events that no invariant reads: client calls, and state that a snapshot shows."""
    kind: type[NamedTuple] | None = TRANSLATION.get(type(event))
    return None if kind is None else tuple.__new__(kind, event)
