"""An invariant: a named pure function that yields the violations of its claim in a transition."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace

from swarden.invariants.changes import PARTS
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Evidence, Violation

CONTRACTS = "swarden.invariants.contracts"

Given = Callable[[Transition], bool]


@dataclass(frozen=True, eq=False)
class Invariant:
    """A claim and the function that finds its violations."""

    name: str
    claim: str
    when: When
    needs: frozenset[str]  # parts of a snapshot and types of events; without one it is not applicable
    on: frozenset[type]  # due only if one of these happened; not applicable if the engine reports none
    reads: frozenset[str]  # if it held before, and these parts of the state after are the same objects, it holds
    given: Given | None  # if false when due, it is not applicable
    find: Callable[[Transition], Evidence]

    @property
    def contract(self) -> str | None:
        """The module of `swarden.invariants.contracts` that defines the invariant; None for a law."""
        package, _, name = self.find.__module__.rpartition(".")
        return name if package == CONTRACTS else None

    def violations(self, change: Transition) -> list[Violation]:
        return [Violation(self.name, *evidence) for evidence in self.find(change)]


def invariant(
    when: When, *, needs: tuple[str, ...] = (), on: tuple[type, ...] = (), given: Given | None = None
) -> Callable[[Callable[[Transition], Evidence]], Invariant]:
    """Make an Invariant of a generator; its name is the function's, its claim the docstring's first line."""

    def made(find: Callable[[Transition], Evidence]) -> Invariant:
        claim = inspect.getdoc(find)
        assert claim, f"{find.__name__} has no docstring, want its claim"
        return Invariant(
            find.__name__, claim.splitlines()[0], when, frozenset(needs), frozenset(on), frozenset(), given, find
        )

    return made


def state_invariant(
    *, reads: tuple[str, ...], needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Transition], Evidence]], Invariant]:
    """Make an Invariant of a generator that depends only on the parts that it `reads` of the state after the step."""
    assert set(reads) <= set(PARTS), f"reads {reads}: want some of {PARTS}"
    plain = invariant(When.OP, needs=needs)

    def made(find: Callable[[Transition], Evidence]) -> Invariant:
        return replace(plain(find), reads=frozenset(reads))

    return made
