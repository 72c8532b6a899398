"""An adapter of a made-up engine: its snapshot has the facts of the subclass, and those of its parts."""

from dataclasses import replace
from typing import Any

from swarden import kit
from swarden.kit import events, view


class Sleep(kit.Capability, frozen=True):
    sleeps: bool = False

    events = (events.Paused,)

    def inapplicable(self, config, release):
        return ["pauses_are_reported"]

    def attach(self, engine):
        engine.part = Sleeping()
        return [engine.part]


class Sleeping(kit.Part):
    has_work = False

    def __init__(self):
        self.calls = []

    def begin_step(self):
        self.calls.append("step")

    def settle(self):
        self.calls.append("settle")

    def clear(self):
        self.calls.append("clear")

    def views(self, snapshot):
        return replace(snapshot, is_paused=True)


class Port(kit.Adapted):
    """One request of ten tokens in blocks 3, 4 and 5 of four tokens; its engine counts a pass when it ends."""

    code = kit.EngineCode("made.up")
    reported = kit.names_of([events.Launched, events.Written, events.Completed])
    components = (view.ComponentView("blocks", None, 4), view.ComponentView("ring", 6, 4, is_ring=True))
    limits = kit.Limits(4, 1, 64)

    def __init__(self):
        super().__init__()
        self.provide([one for one in (Sleep(), Sleep(sleeps=True)) if one.is_on], config=None)
        self.requests = kit.Clients(self.log.notice)
        self.requests.add(kit.ClientRequest.of(1, kit.Submission(range(10), 3, (), 0, 0)))
        self.units = ((3, 4, 5), (1, 2))

    submit: Any = None
    abort: Any = None
    step: Any = None

    def records(self):
        yield self.record(1, self.units, computed_len=4, shared_len=8, allocated_len=12)


KIND: Any = Port


def launched():
    port = KIND()
    flight = port.launch([port.entry(1, 4, 10, port.units)])
    port.report_written(flight)
    return port, flight


def test_pass_in_flight_is_launched_and_not_committed():
    port, _ = launched()

    [record] = port.capture().records
    [launch] = port.capture().launches

    assert (record.protected_len, record.committed_len, record.launched_len) == (4, 4, 10)
    assert (launch.entries, launch.units, launch.given_up) == ([(1, 4, 10)], [port.units], [])


def test_result_of_a_request_that_was_retracted_since_is_discarded():
    port, flight = launched()
    port.requests.admit(1, 0)
    port.requests.retract(1)
    port.log.take()

    port.complete(flight)

    assert port.log.take() == [events.Completed(1), events.Discarded(1, 1)]
    assert port.capture().records[0].launched_len == 4


def test_pass_writes_the_units_of_its_positions_and_of_a_ring_those_of_its_window():
    port, _ = launched()

    assert [event.pages for event in port.log.take() if isinstance(event, events.Written)] == [(4, 5), (2, 1)]


def test_capability_that_is_on_adds_what_it_reports_and_shows():
    port, _ = launched()

    port.begin_step()
    snapshot = port.capture()
    port.clear()

    assert snapshot.is_paused
    assert snapshot.step == 1
    assert events.ALL_EVENTS - snapshot.unreported == {"Launched", "Written", "Completed", "Paused"}
    assert "pauses_are_reported" in snapshot.unreported
    assert port.part.calls == ["step", "settle", "clear"]


def test_worker_frees_the_units_of_its_request_but_not_those_of_the_cache():
    owners = kit.Owners("blocks", {1: view.FREE, 2: events.TREE, 3: view.FREE})
    moves: list[Any] = []
    worker = kit.Worker(moves.extend)

    worker.works_for(7, worker.take, owners, [1])
    worker.works_for(8, worker.free, owners, [1, 2])
    worker.take(owners, [3])

    tree, first, second = events.TREE, events.Owner("request", 7), events.Owner("request", 8)
    taken, *freed, cached = [(type(move).__name__, move.units, move.owner) for move in moves]
    assert taken == ("Taken", (1,), first)
    assert freed == [("Freed", (1,), second), ("Freed", (2,), tree)]
    assert cached == ("Taken", (3,), tree)
