"""The interface of a level of the strict check: the events that it handles and the violations that it finds."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from engine_under_test.engine import Engine
from harness.core.driver import Moment
from harness.strict.outside import Outside
from invariants.view import PoolView
from invariants.violation import Violation

Handler = Callable[..., Sequence[Violation] | None]  # handles one type of event


class Evidence(NamedTuple):
    """The context of a violation: the history before it and the state of the pools."""

    history: Sequence[Moment]
    pools: Sequence[PoolView]


class Check(Protocol):
    """One level of the strict check."""

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Handler]:
        """Attach to an empty engine. Returns a handler per event type; each handler returns the violations."""

    def evidence(self) -> Evidence: ...
