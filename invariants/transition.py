"""One step or operation of an engine, as invariants check it: the state before, the events, the state after."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from swarden.invariants import events as seen
from swarden.invariants.changes import Changes, follow
from swarden.invariants.derived import Derived, inherit
from swarden.invariants.following import Following
from swarden.invariants.ownership import Misplaced, misplaced_units
from swarden.invariants.passes import PASS_EVENTS, Landing, landings
from swarden.invariants.reference import Expectation, Reference
from swarden.invariants.view import INDEXES, RequestView, Snapshot

NOT_OF_THE_TREE = frozenset(
    {
        seen.Stored,
        seen.Dropped,
        seen.Launched,
        seen.Completed,
        seen.Read,
        seen.Written,
        seen.Compared,
        seen.Taken,
        seen.Given,
        seen.Paired,
    }
)

EventT = TypeVar("EventT")
ValueT = TypeVar("ValueT")


class When(Enum):
    """When an invariant is checked: after each step or other operation, after a step, or at the end of a drain."""

    OP = "op"
    STEP = "step"
    QUIESCENT = "quiescent"


@dataclass(frozen=True)
class Transition:
    """One step or operation: the state before, the events, the state after."""

    before: Snapshot
    events: Sequence[NamedTuple]
    after: Snapshot
    when: When = When.STEP
    reference: Reference = field(default_factory=Reference)  # kept apart from the engine
    steps_without_forward: int = 0  # in a row up to this one, in which work waited and nothing was computed
    checked: Snapshot | None = None  # an earlier `after` without violations, whose objects are not checked again
    first: Snapshot | None = None  # the state of the first rank after the same, if this is a further rank

    def __post_init__(self) -> None:
        inherit(self.before, self.after, INDEXES)
        if self.before.pools is not self.after.pools:
            for before, after in zip(self.before.pools, self.after.pools, strict=False):
                if after is not before and after.capacity >= Following.LEAST:
                    follow(before, after)

    def once(self, find: "Callable[[Transition], ValueT]") -> ValueT:
        """The result of `find(self)`, computed once for all invariants that need it."""
        memo = self._memo
        if find not in memo:
            memo[find] = find(self)
        return memo[find]  # type: ignore[return-value]  # the value is of this `find`

    @Derived
    def _memo(self) -> dict[object, object]:
        return {}

    @Derived
    def by_type(self) -> dict[type, list[NamedTuple]]:
        """The events by their type, in order."""
        grouped: defaultdict[type, list[NamedTuple]] = defaultdict(list)
        for event in self.events:
            grouped[type(event)].append(event)
        return dict(grouped)

    @Derived
    def changes(self) -> Changes:
        """The parts of the state `after` that must be checked; all of them, unless an earlier state was checked."""
        return Changes(self.checked, self.after)

    @Derived
    def tree_events(self) -> list[NamedTuple]:
        """The events of the tree, of evictions and of requests, in order."""
        return [event for event in self.events if type(event) not in NOT_OF_THE_TREE]

    @Derived
    def pass_events(self) -> Sequence[NamedTuple]:
        """The events that decide which requests hold KV and which results of passes are valid, in order."""
        return self.in_order(*PASS_EVENTS)

    @Derived
    def admitted(self) -> set[int]:
        """The requests that were admitted."""
        return {event.request_id for event in self.events_of(seen.Admitted)}

    @Derived
    def discarded(self) -> set[tuple[int, int]]:
        """The launch and the request of each discarded result."""
        return {(event.launch, event.request_id) for event in self.events_of(seen.Discarded)}

    @Derived
    def released(self) -> set[int]:
        """The requests that released a record other than by a pause, and may have got another since."""
        left = {event.request_id for kind in seen.RECORD_RELEASES for event in self.events_of(kind)}  # type: ignore[attr-defined]  # all have one
        return left.union([landing.request_id for landing in self.landings if landing.failed])

    @Derived
    def landings(self) -> list[Landing]:
        """The results of the completed passes, and whether they are valid."""
        return landings(self.before, self.pass_events) if self.events_of(seen.Completed) else []

    @Derived
    def drafts(self) -> dict[tuple[int, int], Sequence[int]]:
        """By launch and request, the draft tokens that the pass computes."""
        views = [view for view in self.before.launches or () if view.drafts]
        of_views = {
            (view.launch, entry[0]): drafts
            for view in views
            for entry, drafts in zip(view.entries, view.drafts, strict=True)
        }
        return of_views | {(event.launch, event.request_id): event.drafts for event in self.events_of(seen.Proposed)}

    @Derived
    def accepted(self) -> dict[int, int]:
        """By request, the number of accepted drafts of passes that were in flight before."""
        return {
            landing.request_id: landing.accepted
            for landing in self.landings
            if landing.accepted and landing.counts and landing.launch in self.before.launch_by_id
        }

    @Derived
    def misplaced(self) -> list[Misplaced]:
        """The units that were moved or written by a holder that was not their owner at that moment."""
        return misplaced_units(self.before, self.events, self.after)

    @Derived
    def grown(self) -> list[tuple[RequestView, Expectation]]:
        """The requests of the state before whose clients have got tokens since, each with the client's view of it."""
        expectations = self.reference.expectations
        pairs = [(request, expectations.get(request.id)) for request in self.before.requests or ()]
        return [
            (request, expected)
            for request, expected in pairs
            if expected is not None and len(expected.tokens) > expected.prompt_len + request.num_outputs
        ]

    @Derived
    def has_same_limits(self) -> bool:
        """Are the limits of the engine the same before and after?"""
        return self.before.limits is self.after.limits or self.before.limits == self.after.limits

    def events_of(self, kind: type[EventT]) -> list[EventT]:
        """The events of one type, in order."""
        return self.by_type.get(kind, [])  # type: ignore[return-value]  # grouped by exactly this type

    def in_order(self, *kinds: type[NamedTuple]) -> Sequence[NamedTuple]:
        """The events of these types, in order."""
        came = frozenset(kinds).intersection(self.by_type)
        if len(came) > 1:
            return [event for event in self.events if type(event) in came]
        return self.by_type[next(iter(came))] if came else ()
