"""All invariants, in the order in which violations are reported: causes before consequences."""

from collections import Counter, defaultdict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import NamedTuple

import invariants
from invariants.invariant import Given, Invariant
from invariants.transition import Transition, When
from invariants.violation import Evidence, Violation

CAUSES_FIRST = (
    "moves",
    "pairing",
    "flights",
    "fence_release",
    "slots",
    "matches",
    "batches",
    "chunk_budget",
    "drafts",
    "drafting",
    "reservation",
    "queue_order",
    "admission",
    "rejection",
    "priorities",
    "preemption",
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
    "retracting_pause",
    "sessions",
    "session_release",
    "handover",
    "decode_reservations",
    "tree",
    "host",
    "host_tier",
    "kv_events",
    "loads",
    "locks",
    "window_locks",
    "cursors",
    "tables",
    "footprint",
    "peers",
    "pools",
    "eviction_counts",
    "counters",
    "longest_match",
    "publishing",
    "eviction",
    "copies",
    "reads",
    "outputs",
    "twins",
    "clients",
    "aborted_requests",
    "progress",
    "naive_model",
)  # modules that are not in this list come last


MOST_CASES = 4096  # in the cache of a catalogue


def collected() -> Iterator[Invariant]:
    """The invariants of all modules of this package, within a module in the order of definition."""
    found = sorted(module.name for module in walk_packages(invariants.__path__, f"{invariants.__name__}."))
    for name in sorted(found, key=_place):
        if name != __name__:
            for value in vars(import_module(name)).values():
                if isinstance(value, Invariant) and value.find.__module__ == name:
                    yield value


def _place(module: str) -> int:
    name = module.rpartition(".")[2]
    return CAUSES_FIRST.index(name) if name in CAUSES_FIRST else len(CAUSES_FIRST)


@dataclass(slots=True)
class Counts:
    """How often an invariant was evaluated, and how often it was not applicable to the engine."""

    evaluated: int = 0
    not_applicable: int = 0


class Check(NamedTuple):
    """An invariant that is due: its name, its condition if it has one, and its generator of violations."""

    name: str
    given: Given | None
    find: Callable[[Transition], Evidence]


@dataclass(frozen=True, eq=False, slots=True)
class Due:
    """The invariants of a kind of transition: those to check, those that still hold, those that are not applicable."""

    checks: tuple[Check, ...]
    unchanged: tuple[str, ...]
    not_applicable: tuple[str, ...]


class Tally(Mapping[str, Counts]):
    """The counts by invariant, from the number of transitions of each kind."""

    def __init__(self) -> None:
        self.transitions: Counter[Due] = Counter()
        self.withheld: Counter[str] = Counter()  # by invariant, the times that its `given` was false: not applicable

    def __getitem__(self, name: str) -> Counts:
        return self._counts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def items(self) -> ItemsView[str, Counts]:
        """The counts of all invariants, computed once."""
        return self._counts.items()

    @property
    def _counts(self) -> dict[str, Counts]:
        counts: defaultdict[str, Counts] = defaultdict(Counts)
        for due, times in self.transitions.items():
            for name in (*due.unchanged, *(one.name for one in due.checks)):
                counts[name].evaluated += times
            for name in due.not_applicable:
                counts[name].not_applicable += times
        for name, times in self.withheld.items():
            counts[name].evaluated -= times
            counts[name].not_applicable += times
        return dict(counts)


class Case(NamedTuple):
    """The properties of a transition that decide which invariants are due."""

    moment: When
    kinds: frozenset[type]
    missing: frozenset[str]
    unchanged: frozenset[str]


class Candidates(NamedTuple):
    """The invariants that may be due at one moment, for an engine that lacks certain parts.

    Those that need a missing part are in `not_applicable`, by name, with the types of events after which they are due;
    without types they are due each time.
    """

    applicable: Sequence[Invariant]
    not_applicable: Sequence[tuple[str, frozenset[type]]]


class Catalog:
    """Invariants in the order in which their violations are reported."""

    def __init__(self, invariants: Iterable[Invariant]) -> None:
        self.invariants = tuple(invariants)
        self._on = frozenset[type]().union(*(one.on for one in self.invariants))
        self._due: dict[Case, Due] = {}
        self._candidates: dict[tuple[When, frozenset[str]], Candidates] = {}

    def check(self, change: Transition, tally: Tally) -> list[Violation]:
        """Every violation of every invariant that is due, in the order of the catalogue; counts them in `tally`."""
        found: list[Violation] = []
        kinds = self._on.intersection(change.by_type)
        due = self._due_in(Case(change.when, kinds, change.after.missing, change.changes.unchanged))
        tally.transitions[due] += 1
        for name, given, find in due.checks:
            if given is None or given(change):
                for broken in find(change):
                    found.append(Violation(name, *broken))
            else:
                tally.withheld[name] += 1
        return found

    def _due_in(self, case: Case) -> Due:
        """The invariants that are due in a case, from a cache."""
        due = self._due.get(case)
        if due is None:
            if len(self._due) >= MOST_CASES:
                self._due.clear()
            key = (case.moment, case.missing)
            if key not in self._candidates:
                self._candidates[key] = _candidates(*key, self.invariants)
            due = self._due[case] = _due(case, self._candidates[key])
        return due


def _candidates(moment: When, missing: frozenset[str], invariants: Iterable[Invariant]) -> Candidates:
    """An invariant of events that the engine never reports is not applicable, whatever events there are."""
    applicable: list[Invariant] = []
    not_applicable: list[tuple[str, frozenset[type]]] = []
    for one in invariants:
        if one.when in (When.OP, moment):
            if one.on and missing.issuperset([kind.__name__ for kind in one.on]):
                not_applicable.append((one.name, frozenset()))
            elif not one.needs.isdisjoint(missing):
                not_applicable.append((one.name, one.on))
            else:
                applicable.append(one)
    return Candidates(applicable, not_applicable)


def _due(case: Case, candidates: Candidates) -> Due:
    due = [one for one in candidates.applicable if not (one.on and one.on.isdisjoint(case.kinds))]
    held = [one.name for one in due if one.reads and one.reads <= case.unchanged]
    checks = [Check(one.name, one.given, one.find) for one in due if not (one.reads and one.reads <= case.unchanged)]
    lacking = [name for name, on in candidates.not_applicable if not (on and on.isdisjoint(case.kinds))]
    return Due(tuple(checks), tuple(held), tuple(lacking))


ALL = Catalog(collected())
CONTRACTS = frozenset(one.contract for one in ALL.invariants if one.contract is not None)


@cache
def catalog_of(contracts: frozenset[str]) -> Catalog:
    """All laws, and the contracts of these modules of `invariants.contracts`."""
    return Catalog(one for one in ALL.invariants if one.contract is None or one.contract in contracts)
