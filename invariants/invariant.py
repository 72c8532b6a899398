"""What an invariant is: a named pure function from a transition to what it finds broken."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace

from invariants.changes import PARTS
from invariants.transition import Transition, When
from invariants.violation import Evidence, Violation

CONTRACTS = "invariants.contracts"

Given = Callable[[Transition], bool]


@dataclass(frozen=True, eq=False)
class Invariant:
    """A claim and the function that finds what breaks it.

    `needs` names the parts of a snapshot and the types of events without which it is not applicable, and `given` is
    what else it takes; without one of the events `on` there is nothing to judge.  An invariant of the state after alone
    may say which parts it `reads`: where it held, and these are still the same objects, it holds.
    """

    name: str
    claim: str
    when: When
    needs: frozenset[str]
    on: frozenset[type]
    reads: frozenset[str]
    given: Given | None
    find: Callable[[Transition], Evidence]

    @property
    def contract(self) -> str | None:
        """The module of `invariants.contracts` that it stands in; None for a law."""
        package, _, name = self.find.__module__.rpartition(".")
        return name if package == CONTRACTS else None

    def violations(self, change: Transition) -> list[Violation]:
        return [Violation(self.name, *one) for one in self.find(change)]


def invariant(
    when: When,
    *,
    needs: tuple[str, ...] = (),
    on: tuple[type, ...] = (),
    given: Given | None = None,
) -> Callable[[Callable[[Transition], Evidence]], Invariant]:
    """Make an Invariant of a generator; its name is the function's, its claim the docstring's first line."""

    def made(find: Callable[[Transition], Evidence]) -> Invariant:
        claim = inspect.getdoc(find)
        assert claim, f"{find.__name__} has no docstring to claim anything"
        return Invariant(
            find.__name__,
            claim.splitlines()[0],
            when,
            frozenset(needs),
            frozenset(on),
            frozenset(),
            given,
            find,
        )

    return made


def state_invariant(
    *, reads: tuple[str, ...], needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Transition], Evidence]], Invariant]:
    """Make an Invariant of a generator that is about the state after alone, and of that about what it `reads`."""
    assert set(reads) <= set(PARTS), f"reads {reads}: want some of {PARTS}"
    plain = invariant(When.OP, needs=needs)

    def made(find: Callable[[Transition], Evidence]) -> Invariant:
        return replace(plain(find), reads=frozenset(reads))

    return made
