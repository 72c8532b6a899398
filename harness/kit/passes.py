"""Passes in flight: the events of their reads, which are reported at their end, and the results that are not used."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import swarden.invariants.events as seen
from swarden.invariants.view import LaunchView


class Entry(Protocol):
    """The part of a pass that belongs to one request; an engine's own entries also have what its memory needs."""

    @property
    def ids(self) -> tuple[int, int, int]:
        """The request, and the positions [start, end) that the pass computes, without the positions of drafts."""

    @property
    def drafts(self) -> Sequence[int]: ...


class TableEntry(NamedTuple):
    """Positions [start, end) of a request, and its units by component; `req` is the engine's own object for it.

    The result is used while the request has the same `run`.
    """

    request: int
    start: int
    end: int
    run: int
    units: Sequence[Sequence[int]]
    req: Any = None
    drafts: Sequence[int] = ()

    @property
    def ids(self) -> tuple[int, int, int]:
        return self.request, self.start, self.end


EntryT = TypeVar("EntryT", bound=Entry)


@dataclass(eq=False)
class Pass(Generic[EntryT]):
    """A launched pass.

    `reports` are the events of what it reads.  They are kept until it completes, because the tokens before a read can
    be outputs of an earlier pass, which no client has yet.
    """

    launch: int
    entries: Sequence[EntryT]
    reports: list[NamedTuple] = field(default_factory=list)

    def launched(self) -> seen.Launched:
        return seen.Launched(self.launch, tuple([entry.ids for entry in self.entries]))

    def completed(self, is_used: Callable[[EntryT], bool]) -> Iterator[NamedTuple]:
        """The events of the end: the kept reports, `Completed`, and `Discarded` for each result that is not used."""
        yield from self.reports
        yield seen.Completed(self.launch)
        yield from [seen.Discarded(self.launch, entry.ids[0]) for entry in self.entries if not is_used(entry)]

    def view(
        self,
        units: Callable[[EntryT], tuple[Sequence[int], ...]],
        is_used: Callable[[EntryT], bool],
        *,
        sessions: Sequence[int] = (),
        are_delivered: bool = False,
    ) -> LaunchView:
        """The pass in a snapshot; `units` returns the units that an entry reads or writes, per component.

        With `are_delivered`, a request whose result is used gets its token even if it is preempted in the meantime.
        """
        drafts = [entry.drafts for entry in self.entries]
        return LaunchView(
            launch=self.launch,
            entries=[entry.ids for entry in self.entries],
            units=[units(entry) for entry in self.entries],
            given_up=[entry.ids[0] for entry in self.entries if not is_used(entry)],
            sessions=sessions if any(sessions) else (),
            drafts=drafts if any(drafts) else (),
            delivered=[entry.ids[0] for entry in self.entries if are_delivered and is_used(entry)],
        )


class Passes(Generic[EntryT]):
    """The passes in flight of an engine, in launch order; their numbers count from 1."""

    def __init__(self) -> None:
        self.in_flight: list[Pass[EntryT]] = []
        self.last_launch = 0

    def launch(self, entries: Sequence[EntryT]) -> Pass[EntryT]:
        self.last_launch += 1
        self.in_flight.append(Pass(self.last_launch, entries))
        return self.in_flight[-1]

    def complete(self, ended: Pass[EntryT]) -> Pass[EntryT]:
        self.in_flight.remove(ended)
        return ended
