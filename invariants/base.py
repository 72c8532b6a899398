"""What an invariant is: a named pure function from a transition to evidence."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple, TypeVar

from invariants.reference import Reference
from invariants.replay import Misplaced, replay
from invariants.view import Snapshot

Evidence = Iterator[tuple[str, str]]
EventT = TypeVar("EventT")


class When(Enum):
    """After every operation, after an engine step, or after a drain."""

    OP = "op"
    STEP = "step"
    QUIESCENT = "quiescent"


class Violation(NamedTuple):
    """One broken subject of one claim."""

    invariant: str
    subject: str
    detail: str


@dataclass(frozen=True)
class Transition:
    """One step or operation: the state before, what happened, the state after.

    `reference` is the truth that the harness keeps apart from the engine.  `steps_without_forward`
    counts the steps up to this one in which work waited and nothing was computed.
    """

    before: Snapshot
    events: Sequence[NamedTuple]
    after: Snapshot
    when: When = When.STEP
    reference: Reference = field(default_factory=Reference)
    steps_without_forward: int = 0

    @cached_property
    def by_type(self) -> dict[type, list[NamedTuple]]:
        """The events by their type, each in order."""
        grouped: dict[type, list[NamedTuple]] = {}
        for event in self.events:
            grouped.setdefault(type(event), []).append(event)
        return grouped

    @cached_property
    def misplaced(self) -> list[Misplaced]:
        """Units that were moved or written by somebody who did not own them just then."""
        return replay(self.before, self.events, self.after)

    def events_of(self, kind: type[EventT]) -> list[EventT]:
        """The events of one type, in order."""
        return self.by_type.get(kind, [])  # type: ignore[return-value]  # grouped by exactly this type


Given = Callable[[Transition], bool]


@dataclass(frozen=True)
class Invariant:
    """A claim and the function that finds what breaks it.

    `covers` names the laws that it stands for; `needs` the parts of a snapshot without which it is
    not applicable, `given` what else it takes; `on` the events without which there is nothing to judge.
    """

    name: str
    claim: str
    when: When
    covers: tuple[str, ...]
    needs: frozenset[str]
    on: frozenset[type]
    given: Given | None
    find: Callable[[Transition], Evidence]

    def is_due(self, change: Transition) -> bool:
        """Is this the moment, and is there anything to judge?"""
        return (self.when is When.OP or self.when is change.when) and (
            not self.on or not self.on.isdisjoint(change.by_type)
        )

    def applies(self, change: Transition) -> bool:
        """Does the engine give what the claim is about?"""
        return self.needs.isdisjoint(change.after.missing) and (self.given is None or self.given(change))

    def violations(self, change: Transition) -> list[Violation]:
        return [Violation(self.name, subject, detail) for subject, detail in self.find(change)]


def invariant(
    when: When,
    *,
    covers: tuple[str, ...],
    needs: tuple[str, ...] = (),
    on: tuple[type, ...] = (),
    given: Given | None = None,
) -> Callable[[Callable[[Transition], Evidence]], Invariant]:
    """Make an Invariant of a generator; its name is the function's, its claim the docstring's first line."""

    def made(find: Callable[[Transition], Evidence]) -> Invariant:
        claim = inspect.getdoc(find)
        assert claim, f"{find.__name__} has no docstring to claim anything"
        return Invariant(
            find.__name__, claim.splitlines()[0], when, covers, frozenset(needs), frozenset(on), given, find
        )

    return made
