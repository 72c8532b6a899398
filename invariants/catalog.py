"""All invariants, in the order in which a reader wants to hear of them: causes before consequences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple

import invariants
from invariants.base import Invariant, Transition, Violation, When

CAUSES_FIRST = (
    "moves",
    "flights",
    "matches",
    "batches",
    "drafts",
    "admission",
    "yielding",
    "timeouts",
    "ratio",
    "places",
    "sessions",
    "handover",
    "tree",
    "host",
    "loads",
    "locks",
    "cursors",
    "peers",
    "pools",
    "claims",
    "publishing",
    "eviction",
    "content",
    "clients",
    "progress",
    "model",
)  # a module that nobody has given a place comes last


def collected() -> Iterator[Invariant]:
    """The invariants of all modules of this package, in each as it defines them."""
    found = sorted(module.name for module in iter_modules(invariants.__path__))
    for name in sorted(found, key=lambda name: CAUSES_FIRST.index(name) if name in CAUSES_FIRST else len(CAUSES_FIRST)):
        if name != __name__.rpartition(".")[2]:
            module = import_module(f"{invariants.__name__}.{name}")
            for value in vars(module).values():
                if isinstance(value, Invariant) and value.find.__module__ == module.__name__:
                    yield value


CATALOG: tuple[Invariant, ...] = tuple(collected())

MOST_CASES = 4096  # remembered


@dataclass(slots=True)
class Counts:
    """How often an invariant was judged, and how often the engine could not give what it is about."""

    evaluated: int = 0
    not_applicable: int = 0


Tally = dict[str, Counts]


class Due(NamedTuple):
    """What a transition calls for: of these invariants the ones that are judged, the ones that still hold, the rest."""

    judged: tuple[Invariant, ...]
    unchanged: tuple[str, ...]
    not_applicable: tuple[str, ...]


class Case(NamedTuple):
    """What decides which invariants are due: the moment, the types of the events, and the parts of the state."""

    moment: When
    kinds: frozenset[type]
    missing: frozenset[str]
    unchanged: frozenset[str]


def check(change: Transition, tally: Tally, catalog: Sequence[Invariant] = CATALOG) -> list[Violation]:
    """Every violation of every invariant that is due, in the order of the catalogue; counts them in `tally`."""
    found: list[Violation] = []
    case = Case(change.when, frozenset(change.by_type), change.after.missing, change.changes.unchanged)
    due = _usually_due(case) if catalog is CATALOG else _due(case, catalog)
    for name in due.not_applicable:
        _counts(tally, name).not_applicable += 1
    for name in due.unchanged:
        _counts(tally, name).evaluated += 1
    for one in due.judged:
        counts = tally.get(one.name) or _counts(tally, one.name)
        if one.given is None or one.given(change):
            counts.evaluated += 1
            for subject, detail in one.find(change):
                found.append(Violation(one.name, subject, detail))
        else:
            counts.not_applicable += 1
    return found


def _due(case: Case, catalog: Sequence[Invariant]) -> Due:
    applicable: list[Invariant] = []
    not_applicable: list[str] = []
    for one in catalog:
        if one.when in (When.OP, case.moment) and not (one.on and one.on.isdisjoint(case.kinds)):
            if one.needs.isdisjoint(case.missing):
                applicable.append(one)
            else:
                not_applicable.append(one.name)
    held = [one for one in applicable if one.reads and one.reads <= case.unchanged]
    judged = tuple(one for one in applicable if one not in held)
    return Due(judged, tuple(one.name for one in held), tuple(not_applicable))


@lru_cache(maxsize=MOST_CASES)
def _usually_due(case: Case) -> Due:
    return _due(case, CATALOG)


def _counts(tally: Tally, name: str) -> Counts:
    counts = tally.get(name)
    if counts is None:
        counts = tally[name] = Counts()
    return counts
