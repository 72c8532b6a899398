"""All invariants, in the order in which violations are reported: causes before consequences."""

from collections import Counter, defaultdict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import NamedTuple

from swarden import invariants
from swarden.invariants.invariant import Given, Invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Evidence, Violation

CAUSES_FIRST = """
    moves pairing flights slots matches batches chunk_budget drafts drafting grammars reservation queue_order
    overtaking admission free_places rejection priorities preemption reclaiming running_requests retraction releases
    retries out_of_memory timeouts overdue_requests ratio ratio_range places single_chunk pauses resets
    retracting_pause sessions session_release session_timeouts handover decode_reservations tree host host_tier
    kv_events router loads locks window_locks cursors tables footprint state_pages peers pools counters
    longest_match first_passes served_prefixes publishing completeness write_through recency eviction
    needed_evictions copies reads outputs clients aborted_requests progress service
"""  # modules; those that are not among them come last

MOST_DUE = 4_096  # sets of invariants that are due together, of about 1 KB each; a long campaign has some thousands


def collected() -> Iterator[Invariant]:
    """The invariants of all modules of this package, within a module in the order of definition."""
    modules = sorted(module.name for module in walk_packages(invariants.__path__, f"{invariants.__name__}."))
    for name in sorted(modules, key=_place):
        if name != __name__:
            for value in vars(import_module(name)).values():
                if isinstance(value, Invariant) and value.find.__module__ == name:
                    yield value


def _place(module: str) -> int:
    names, name = CAUSES_FIRST.split(), module.rpartition(".")[2]
    return names.index(name) if name in names else len(names)


@dataclass(slots=True)
class EvaluationCounts:
    """How often an invariant was evaluated, and how often it was not applicable to the engine."""

    evaluated: int = 0
    not_applicable: int = 0


class Check(NamedTuple):
    """An invariant to evaluate: its name, the parts that it reads, its condition, its generator of violations."""

    name: str
    reads: frozenset[str]  # if all are the same as when they were checked, the invariant still holds
    given: Given | None
    find: Callable[[Transition], Evidence]


@dataclass(frozen=True, eq=False, slots=True)
class Due:
    """The invariants that are due together, in the order of the catalogue."""

    checks: Sequence[Check]
    not_applicable: Sequence[str]  # by name, for want of a part


class Tally(Mapping[str, EvaluationCounts]):
    """The counts by invariant, from the number of transitions in which the same ones were due."""

    def __init__(self) -> None:
        self.withheld: Counter[str] = Counter()  # by invariant, the times that its `given` was false: not applicable
        self._due: Counter[Due] = Counter()
        self._settled: dict[str, EvaluationCounts] = {}

    def add(self, due: Due) -> None:
        """Count invariants that are due together."""
        if len(self._due) >= MOST_DUE:
            self._settled = self._counts
            self._due.clear()
            self.withheld.clear()
        self._due[due] += 1

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
        counts = defaultdict(EvaluationCounts, {name: replace(one) for name, one in self._settled.items()})
        for due, times in self._due.items():
            for check in due.checks:
                counts[check.name].evaluated += times
            for name in due.not_applicable:
                counts[name].not_applicable += times
        for name, times in self.withheld.items():
            counts[name].evaluated -= times
            counts[name].not_applicable += times
        return dict(counts)


class Catalog:
    """Invariants in the order in which their violations are reported."""

    def __init__(self, invariants: Iterable[Invariant]) -> None:
        self.invariants = tuple(invariants)
        self._kinds = frozenset[type]().union(*[law.on for law in self.invariants])
        self._checks = {law: Check(law.name, law.reads, law.given, law.find) for law in self.invariants}
        self._due: dict[tuple[When, frozenset[str], frozenset[type]], Due] = {}

    def check(self, change: Transition, tally: Tally) -> list[Violation]:
        """Every violation of every invariant that is due, in the order of the catalogue; counts them in `tally`."""
        violations, unchanged = list[Violation](), change.changes.unchanged
        moment = change.when, change.after.missing, self._kinds.intersection(change.by_type)
        due = self._due.get(moment)
        if due is None:
            if len(self._due) >= MOST_DUE:
                self._due.clear()
            due = self._due[moment] = self._due_at(*moment)
        tally.add(due)
        for name, reads, given, find in due.checks:
            if reads and reads <= unchanged:
                continue
            if given is None or given(change):
                for broken in find(change):
                    violations.append(Violation(name, *broken))
            else:
                tally.withheld[name] += 1
        return violations

    def _due_at(self, when: When, missing: frozenset[str], came: frozenset[type]) -> Due:
        """The invariants that are due then, or after one of the events that came.

        An invariant is not applicable if the engine never reports its events, or names it among what it does not
        report.
        """
        checks, not_applicable = list[Check](), list[str]()
        for law in self.invariants:
            is_silent = bool(law.on) and missing.issuperset([kind.__name__ for kind in law.on])
            if law.when not in (When.OP, when) or (law.on and not is_silent and law.on.isdisjoint(came)):
                continue
            if is_silent or law.name in missing or not law.needs.isdisjoint(missing):
                not_applicable.append(law.name)
            else:
                checks.append(self._checks[law])
        return Due(checks, not_applicable)


ALL = Catalog(collected())
CONTRACTS = frozenset(law.contract for law in ALL.invariants if law.contract is not None)


@cache
def catalog_of(contracts: frozenset[str]) -> Catalog:
    """All laws, and the contracts of these modules of `swarden.invariants.contracts`."""
    return Catalog(law for law in ALL.invariants if law.contract is None or law.contract in contracts)
