"""Snapshots of our engine: facts from a walk over it, and the counters that it keeps."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.scheduler.custody import Custody
from swarden.engine_under_test.scheduler.pipeline import Flight
from swarden.engine_under_test.sessions.controller import Sessions
from swarden.engine_under_test.units import handover_owner
from swarden.harness.engines.own.limits import counters_of, limits_of
from swarden.harness.engines.own.memory_walk import MemoryWalk, Outside
from swarden.harness.engines.own.router import OwnRouter
from swarden.invariants.events import HANDOVER_KIND
from swarden.invariants.reuse import same_or_new
from swarden.invariants.view import Counters, LaunchView, RequestView, SessionView, Snapshot


class EngineCapture:
    """Walks one engine between two steps, whose events have none of the types with the names `unreported`.

    `is_delivered` says of the transfer of a request whether all was sent and read; None if that is not known.
    """

    def __init__(
        self,
        engine: Engine,
        unreported: frozenset[str] = frozenset(),
        is_delivered: Callable[[int], bool] | None = None,
        router: OwnRouter | None = None,
    ) -> None:
        self._engine = engine
        self._unreported, self._is_delivered, self._router = unreported, is_delivered, router
        self._walk = MemoryWalk(engine.memory, engine.cache.tree)
        self._limits = limits_of(engine.config)
        self.note, self.num_units = self._walk.ledgers.note, sum([pool.num_pages for pool in engine.config.pools])
        self._requests: tuple[RequestView, ...] = ()
        self._launches: tuple[LaunchView, ...] = ()
        self._sessions: tuple[SessionView, ...] = ()
        self._counters: Counters | None = None

    def capture(self, *, step: int, outside: Outside, now_ms: int | None = None, is_audit: bool = True) -> Snapshot:
        engine, walk = self._engine, self._walk
        custody = engine.scheduler.custody
        side = custody.other_side
        records = custody.with_row + custody.sessions.records
        copies = engine.scheduler.loading.under_way
        walk.visit(records, outside, custody.departures.waiting, copies, is_audit=is_audit)
        flights = engine.scheduler.pipeline.flights
        transfers = [view.owner.id for view in walk.records if view.owner.kind == HANDOVER_KIND]
        delivered = None if self._is_delivered is None else frozenset(filter(self._is_delivered, transfers))
        self._launches = same_or_new(self._launches, tuple([launch_view(flight, custody) for flight in flights]))
        self._requests = same_or_new(self._requests, tuple(_request_views(engine, now_ms)))
        self._sessions = same_or_new(self._sessions, _session_views(custody.sessions))
        counters = counters_of(engine.memory, engine.cache.tree, ratio=engine.scheduler.ratio.value)
        self._counters = same_or_new(self._counters, counters)
        return Snapshot(
            step=step,
            limits=self._limits,
            components=walk.components,
            pools=walk.pools,
            peer_maps=walk.peer_maps,
            nodes=walk.nodes,
            receipts=walk.receipts,
            records=walk.records,
            requests=self._requests,
            counters=self._counters,
            launches=self._launches,
            is_paused=engine.scheduler.is_paused,
            copy_jobs=walk.copy_jobs,
            host_pools=walk.host_pools,
            sessions=self._sessions,
            cached_blocks=None if self._router is None else self._router.cached_blocks(walk.nodes),
            awaited={number: self._units_at(number, missing) for number, missing in side.awaited.items()},
            delivered=delivered,
            due_transfers=delivered,
            unreported=self._unreported,
        )

    def _units_at(self, request: int, places: Mapping[str, Collection[int]]) -> tuple[Sequence[int], ...]:
        """Per component, the units of a request's transfer at these page indices; 0 for an index behind its end."""
        [units] = [view.units for view in self._walk.records if view.owner == handover_owner(request)]
        return tuple(
            [
                [table[place] if place < len(table) else 0 for place in sorted(places.get(component.pool, ()))]
                for component, table in zip(self._walk.components, units, strict=True)
            ]
        )


def awaits_another(engine: Engine) -> bool:
    """Does this side of a pair wait for the other?

    Transfers hold records here, or the only work that is left is that with the other side.
    """
    scheduler = engine.scheduler
    other_side = scheduler.custody.other_side
    return bool(other_side.records) or (other_side.has_work and not scheduler.has_work)


def _request_views(engine: Engine, now_ms: int | None) -> Iterator[RequestView]:
    scheduler = engine.scheduler
    places = [
        ("waiting", list(scheduler.waiting)),
        ("loading", list(scheduler.loading)),
        ("running", scheduler.running),
        ("linked", scheduler.custody.other_side.requests),
    ]
    if scheduler.chunked:
        places.append(("chunked", [scheduler.chunked]))
    for place, requests in places:
        for request in requests:
            yield RequestView(
                request.id,
                place,
                request.namespace,
                request.prompt_len,
                request.num_outputs,
                request.sampling.max_new_tokens,
                request.priority,
                request.setbacks.failures,
                None if now_ms is None else now_ms - request.arrival_ms,
                scheduler.loading.awaited(request),
                request.session,
            )


def _session_views(sessions: Sessions) -> tuple[SessionView, ...]:
    return tuple(
        SessionView(
            session.id,
            session.namespace,
            session.turn,
            session.record.committed_len if session.record else 0,
            session.is_closing,
        )
        for session in sessions.by_id.values()
    )


def launch_view(flight: Flight, custody: Custody) -> LaunchView:
    """A pass in flight, with the pages in its tensors and the requests whose results will be discarded."""
    pools = [(pool.spans, pool.pages.tolist()) for pool in flight.batch.pools]
    entries, units = [], []
    for index, entry in enumerate(flight.entries):
        entries.append((entry.request.id, entry.start, entry.end))
        spans = [(spans[index], pages) for spans, pages in pools]
        units.append(tuple(pages[span.begin : span.begin + span.num_pages] for span, pages in spans))
    discarded = [entry.request.id for entry in flight.entries if not custody.holds(entry.request, entry.record)]
    sessions = [entry.request.session for entry in flight.entries]
    drafts = [entry.drafts for entry in flight.entries]
    return LaunchView(
        launch=flight.batch.launch,
        entries=entries,
        units=units,
        given_up=discarded,
        sessions=sessions if any(sessions) else (),
        drafts=drafts if any(drafts) else (),
    )
