"""What a level of the strict check is: which events it hears, and what it has to say of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from engine_under_test.engine import Engine
from harness.core.driver import Moment
from harness.strict.outside import Outside
from invariants.view import PoolView
from invariants.violation import Violation

Hearer = Callable[..., Sequence[Violation] | None]  # of one type of event


class Evidence(NamedTuple):
    """What there is to say beside a violation: what happened before it, and how the pools stand."""

    history: Sequence[Moment]
    pools: Sequence[PoolView]


class Check(Protocol):
    """One depth of looking at an engine."""

    def attach(self, engine: Engine, outside: Outside) -> Mapping[type, Hearer]:
        """Meet the engine while it is empty; what to call for which events, each with what is wrong."""

    def evidence(self) -> Evidence: ...
