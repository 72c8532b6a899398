"""All invariants, in the order in which violations are reported: causes before consequences."""

from collections import Counter, defaultdict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import chain
from operator import itemgetter
from pkgutil import walk_packages
from typing import NamedTuple

from swarden import invariants
from swarden.invariants.invariant import Given, Invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Evidence, Violation

CAUSES_FIRST = (
    "moves",
    "pairing",
    "flights",
    "slots",
    "matches",
    "batches",
    "chunk_budget",
    "drafts",
    "drafting",
    "grammars",
    "reservation",
    "queue_order",
    "overtaking",
    "admission",
    "free_places",
    "rejection",
    "priorities",
    "preemption",
    "reclaiming",
    "running_requests",
    "retraction",
    "releases",
    "retries",
    "out_of_memory",
    "timeouts",
    "overdue_requests",
    "ratio",
    "ratio_range",
    "places",
    "single_chunk",
    "pauses",
    "resets",
    "retracting_pause",
    "sessions",
    "session_release",
    "session_timeouts",
    "handover",
    "decode_reservations",
    "tree",
    "host",
    "host_tier",
    "kv_events",
    "router",
    "loads",
    "locks",
    "window_locks",
    "cursors",
    "tables",
    "footprint",
    "state_pages",
    "peers",
    "pools",
    "counters",
    "longest_match",
    "first_passes",
    "served_prefixes",
    "publishing",
    "completeness",
    "write_through",
    "recency",
    "eviction",
    "needed_evictions",
    "copies",
    "reads",
    "outputs",
    "clients",
    "aborted_requests",
    "progress",
    "service",
)  # modules that are not in this list come last


def collected() -> Iterator[Invariant]:
    """The invariants of all modules of this package, within a module in the order of definition."""
    modules = sorted(module.name for module in walk_packages(invariants.__path__, f"{invariants.__name__}."))
    for name in sorted(modules, key=_place):
        if name != __name__:
            for value in vars(import_module(name)).values():
                if isinstance(value, Invariant) and value.find.__module__ == name:
                    yield value


def _place(module: str) -> int:
    name = module.rpartition(".")[2]
    return CAUSES_FIRST.index(name) if name in CAUSES_FIRST else len(CAUSES_FIRST)


@dataclass(slots=True)
class EvaluationCounts:
    """How often an invariant was evaluated, and how often it was not applicable to the engine."""

    evaluated: int = 0
    not_applicable: int = 0


class Check(NamedTuple):
    """An invariant to evaluate: its place in the catalogue, its name, its condition, its generator of violations."""

    place: int
    name: str
    given: Given | None
    find: Callable[[Transition], Evidence]


@dataclass(frozen=True, eq=False, slots=True)
class InvariantGroup:
    """Invariants that are due together."""

    on: frozenset[type]  # due after one of these events, or each time if it is empty
    reads: frozenset[str]  # if all are the same as when they were checked, the invariants still hold
    checks: list[Check] = field(default_factory=list)
    not_applicable: list[str] = field(default_factory=list)  # by name, for want of a part


@dataclass(frozen=True, eq=False, slots=True)
class Groups:
    """The groups to evaluate at one moment (When): those due `always`, and those due `after` an event of a type."""

    always: Sequence[InvariantGroup]
    after: Mapping[type, Sequence[InvariantGroup]]


class Tally(Mapping[str, EvaluationCounts]):
    """The counts by invariant, from the number of transitions in which each group was due."""

    def __init__(self) -> None:
        self.moments: Counter[Groups] = Counter()  # the transitions for which the groups `always` were due
        self.due: Counter[InvariantGroup] = Counter()  # the transitions for which a group was due because of its events
        self.withheld: Counter[str] = Counter()  # by invariant, the times that its `given` was false: not applicable

    def __getitem__(self, name: str) -> EvaluationCounts:
        return self._counts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def items(self) -> ItemsView[str, EvaluationCounts]:
        """The counts of all invariants, computed once."""
        return self._counts.items()

    @property
    def _counts(self) -> dict[str, EvaluationCounts]:
        counts: defaultdict[str, EvaluationCounts] = defaultdict(EvaluationCounts)
        always = [(group, times) for groups, times in self.moments.items() for group in groups.always]
        for group, times in [*always, *self.due.items()]:
            for check in group.checks:
                counts[check.name].evaluated += times
            for name in group.not_applicable:
                counts[name].not_applicable += times
        for name, times in self.withheld.items():
            counts[name].evaluated -= times
            counts[name].not_applicable += times
        return dict(counts)


class Catalog:
    """Invariants in the order in which their violations are reported."""

    def __init__(self, invariants: Iterable[Invariant]) -> None:
        self.invariants = tuple(invariants)
        self._groups: dict[tuple[When, frozenset[str]], Groups] = {}  # by moment and missing parts

    def check(self, change: Transition, tally: Tally) -> list[Violation]:
        """Every violation of every invariant that is due, in the order of the catalogue; counts them in `tally`."""
        violations: list[tuple[int, Violation]] = []
        groups, unchanged = self._groups_at(change.when, change.after.missing), change.changes.unchanged
        due = list(dict.fromkeys(chain.from_iterable([groups.after.get(kind, ()) for kind in change.by_type])))
        tally.moments[groups] += 1
        tally.due.update(due)
        for group in chain(groups.always, due):
            if group.reads and group.reads <= unchanged:
                continue
            for place, name, given, find in group.checks:
                if given is None or given(change):
                    for broken in find(change):
                        violations.append((place, Violation(name, *broken)))
                else:
                    tally.withheld[name] += 1
        return [violation for _, violation in sorted(violations, key=itemgetter(0))]

    def _groups_at(self, moment: When, missing: frozenset[str]) -> Groups:
        groups = self._groups.get((moment, missing))
        if groups is None:
            groups = self._groups[moment, missing] = _groups(moment, missing, self.invariants)
        return groups


def _groups(moment: When, missing: frozenset[str], invariants: Iterable[Invariant]) -> Groups:
    """The invariants in groups that are due together.

    An invariant is not applicable if the engine never reports its events, or names it among what it does not report.
    """
    groups: dict[tuple[frozenset[type], frozenset[str]], InvariantGroup] = {}
    for place, law in enumerate(invariants):
        if law.when in (When.OP, moment):
            is_silent = bool(law.on) and missing.issuperset([kind.__name__ for kind in law.on])
            key = (frozenset[type]() if is_silent else law.on, law.reads)
            group = groups.setdefault(key, InvariantGroup(*key))
            if is_silent or law.name in missing or not law.needs.isdisjoint(missing):
                group.not_applicable.append(law.name)
            else:
                group.checks.append(Check(place, law.name, law.given, law.find))
    after: defaultdict[type, list[InvariantGroup]] = defaultdict(list)
    for group in groups.values():
        for kind in group.on:
            after[kind].append(group)
    return Groups([group for group in groups.values() if not group.on], dict(after))


ALL = Catalog(collected())
CONTRACTS = frozenset(law.contract for law in ALL.invariants if law.contract is not None)


@cache
def catalog_of(contracts: frozenset[str]) -> Catalog:
    """All laws, and the contracts of these modules of `swarden.invariants.contracts`."""
    return Catalog(law for law in ALL.invariants if law.contract is None or law.contract in contracts)
