"""Passes in flight: what is reported when one completes, and how a snapshot shows it."""

from typing import NamedTuple

from swarden.harness.kit.passes import Passes
from swarden.invariants.events import Completed, Discarded, Verified


class SomeEntry(NamedTuple):
    request: int
    drafts: tuple[int, ...] = ()

    @property
    def ids(self):
        return self.request, 4, 6


def test_reads_are_reported_before_the_end_and_unused_results_after_it():
    passes = Passes[SomeEntry]()
    one = passes.launch([SomeEntry(1), SomeEntry(2)])
    read = Verified(one.launch, 1, 0, (3,))
    one.reports.append(read)

    events = [*passes.complete(one).completed(lambda entry: entry.request == 1)]

    assert events == [read, Completed(1), Discarded(1, 2)]
    assert passes.in_flight == []


def test_passes_are_numbered_in_launch_order_whichever_completes_first():
    passes = Passes[SomeEntry]()
    first, second = passes.launch([]), passes.launch([])

    passes.complete(second)

    assert (first.launch, second.launch, passes.launch([]).launch) == (1, 2, 3)
    assert passes.in_flight[0] is first


def test_snapshot_names_the_requests_that_gave_up_and_those_that_get_their_token():
    one = Passes[SomeEntry]().launch([SomeEntry(1), SomeEntry(2, (8,))])

    view = one.view(lambda entry: ([entry.request],), lambda entry: entry.request == 2, are_delivered=True)

    assert (view.given_up, view.delivered, view.drafts) == ([1], [2], [(), (8,)])
    assert (view.entries, view.units) == ([(1, 4, 6), (2, 4, 6)], [([1],), ([2],)])
