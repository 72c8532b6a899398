"""The data of a running engine that the strict check needs: the engine's target describes it as a `Live`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from swarden.harness.core.driver import Moment
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header
from swarden.harness.strict.owners import OwnerTable
from swarden.invariants.events import Owner
from swarden.invariants.view import PoolView, Snapshot
from swarden.invariants.violation import Violation

Handler = Callable[..., Sequence[Violation] | None]  # handles one type of event, and returns the violations
Handlers = Mapping[type, Handler]
# At the end of a step, with the requests that took units and the owners that freed a row in it.
Compare = Callable[[Collection[Owner]], Sequence[Violation]]


class MemoryViolation(AssertionError):
    """A law is broken; the text is the story."""


class Evidence(NamedTuple):
    """The context of a violation: the history before it and the state of the pools."""

    history: Sequence[Moment]
    pools: Sequence[PoolView]


class Check(Protocol):
    """One part of a level: handlers of events, and the context of the violations that they find."""

    @property
    def handlers(self) -> Handlers: ...

    def evidence(self) -> Evidence: ...


class Terms(NamedTuple):
    """The terms of a pool's conservation, by the engine's own counters; all but the capacity must add up to it."""

    pool: str
    capacity: int
    free: int
    evictable: int = 0
    protected: int = 0
    uncached: int = 0
    fenced: int = 0


class FreeList(Protocol):
    @property
    def num_free(self) -> int: ...

    @property
    def free_units(self) -> Sequence[int]: ...


class LivePool(NamedTuple):
    """A pool whose moves are events, and its free list if that holds only the free units."""

    name: str
    unit: str
    capacity: int
    free: FreeList | None = None


def _no_content(_live: "Live", _share: float) -> Sequence[Check]:
    raise UsageError("the level content is not available for this engine; choose census")


@dataclass(frozen=True, kw_only=True)
class Live:
    """One running engine, described for the check; `owned` adds the owners of moved units to events without one."""

    error: type[Exception] = MemoryViolation
    handlers: Handlers  # they see each event before the check
    terms: Callable[[], Iterable[Terms]]
    uncached: Callable[[str], Mapping[Owner, int]]  # the number of units of a pool by owner, without those of the tree
    pools: Sequence[LivePool]  # whose owners an audit follows
    peers: Sequence[tuple[str, str]] = ()  # two pools: units of the first have peers in the second
    holders: Callable[[Mapping[str, OwnerTable]], Compare]  # compares the tables of an audit with the requests
    capture: Callable[[int, Snapshot | None], Snapshot]  # makes a snapshot from the step and the last snapshot
    moves: Sequence[type] = ()  # further types of events, which `owned` replaces
    owned: Callable[[Sequence[NamedTuple], Snapshot, Snapshot], Sequence[NamedTuple]] = lambda events, *_: events
    contracts: frozenset[str] = frozenset()
    units_per_step: int | None = None  # a census walks about as many units a step; None: all units in each step
    has_inputs: Callable[[], bool] = lambda: False  # clients called since the last step
    needs_no_pass: Callable[[], bool]
    is_paused: Callable[[], bool]
    header: Callable[[], Header]  # of the op-log of client calls
    max_recorded_ops: int
    lost: Sequence[str] = ()  # the settings that a replay lacks
    is_empty: Callable[[], bool] = lambda: False  # the op-log begins again then
    records_time: bool = False
    session_tokens: Callable[[int], Sequence[int]] = lambda _session: ()
    pressure: Mapping[str, int] = field(default_factory=dict)  # now, by pool: units of owners outside of the engine
    content: "Callable[[Live, float], Sequence[Check]]" = _no_content
