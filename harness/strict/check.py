"""The interface of a level of the strict check: the events that it handles and the violations that it finds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from swarden.engine_under_test.engine import Engine
from swarden.harness.strict.evidence import Evidence
from swarden.harness.strict.outside import Outside
from swarden.invariants.violation import Violation

Handler = Callable[..., Sequence[Violation] | None]  # handles one type of event


class StrictLevel(Protocol):
    """One level of the strict check."""

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Handler]:
        """Attach to an empty engine. Returns a handler per event type; each handler returns the violations."""

    def evidence(self) -> Evidence: ...
