"""The KV records of requests: growth, window slides, publishing, release, and the move to a session."""

from collections.abc import Sequence

from swarden.engine_under_test.cache.departures import Departures
from swarden.engine_under_test.cache.match import Match
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.paired import Need, shortage
from swarden.engine_under_test.ports import Observer
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.scheduler.loading import Storage
from swarden.engine_under_test.scheduler.other_side import OtherSide
from swarden.engine_under_test.sessions.controller import Sessions
from swarden.engine_under_test.units import pages_between
from swarden.invariants.events import FreeCause, Slid


class Custody:
    """One record per request that holds KV; a released request holds no record.

    `other_side` sends records to the peer engine, or receives them, when two engines serve a request.
    """

    def __init__(
        self, config: EngineConfig, storage: Storage, observer: Observer | None, other_side: OtherSide
    ) -> None:
        self._memory, self._cache, self._host = storage
        self._observer = observer
        self._records: dict[int, KVRecord] = {}
        self.departures = Departures(self._memory, self._cache)
        self.sessions = Sessions(config, self._memory, self.departures, observer)
        self.other_side = other_side

    @property
    def records(self) -> list[KVRecord]:
        return list(self._records.values())

    @property
    def with_row(self) -> list[KVRecord]:
        """The records of requests, and of transfers between engines."""
        return [*self.records, *self.other_side.records]

    def holds(self, request: Request, record: KVRecord) -> bool:
        """Is `record` still the record of the request?"""
        return self._records.get(request.id) is record

    def record(self, request: Request) -> KVRecord:
        return self._records[request.id]

    def open(self, request: Request, record: KVRecord) -> None:
        """Store the record of an admitted request."""
        assert request.id not in self._records, f"request {request.id} has a record already"
        self._records[request.id] = record

    def grow(self, record: KVRecord, length: int, *, end: int) -> None:
        """Take pages for `length` tokens, of which those up to `end` are computed next.

        Evicts unlocked pages if needed; raises PoolExhausted with no page taken.

        |......... allocated_len|. begun page .|new pages, and in some pools holes ....|end ... length
        """
        page_size, pools = self._memory.page_size, self._memory.pools
        count = pages_between(record.allocated_len, length, page_size)
        if count:
            first = len(record.handles)
            taken = {pool.name: pool.taken(first, first + count, end=end) for pool in pools if pool.has_states}
            self.evict({pool.name: len(taken.get(pool.name, range(count))) for pool in pools})
            places = {pool: [index - first for index in indices] for pool, indices in taken.items()}
            record.write(self._memory.table, first, self._memory.ledgers.take(count, owner=record.owner, places=places))
            for pool, indices in taken.items():
                record.skip(pool, indices, first, first + count, page_size=page_size)
        record.allocated_len = length

    def evict(self, need: Need) -> Need:
        """Evict until `need` pages are free in each pool, if possible; returns the pages still missing, by pool."""
        ledgers = self._memory.ledgers.ledgers
        short = shortage(ledgers, need)
        if not short:
            return short
        if self._host is None:
            self._cache.evict(short)
        else:
            self._host.make_room(need)
        return shortage(ledgers, need)

    def slide_windows(self, requests: Sequence[Request], *, interval: int) -> None:
        """Release the pages of each pool that no later token reads, once they are `interval` tokens or more.

        No pass in flight reads these pages either: the tokens in flight begin at committed_len.

        |the tree's, unlocked |protected_len|..freed..|frontier| window and what is computed next |
        """
        for request in requests:
            record = self._records[request.id]
            for pool in self._memory.pools:
                frontier = pool.frontier(record.committed_len)
                if frontier >= record.frontier(pool.name) + interval:
                    self._slide(request, record, pool.name, frontier)

    def publish(self, request: Request, *, end: int) -> None:
        """Insert the whole pages of [0, end) into the tree."""
        record = self.record(request)
        if self.other_side.is_withheld(record, end):
            return
        self._cache.publish(record, request.tokens, namespace=request.namespace, end=end)
        if self._host is not None:
            self._host.published(record.receipt.node)
        self.other_side.published(request, record)

    def units_of(self, record: KVRecord, *, but: Match) -> Need:
        """The units that releasing a record would free, by pool: the row, private pages, and pages only it protects.

        Pages of the match `but` are not counted: a request that starts from that match protects them again.
        """
        pages = self._cache.pages_under(record.receipt, but=but)
        for handles, freed in record.private_parts(self._memory.page_size):
            for pool in pages:
                pages[pool] += 0 if pool in freed else len(handles)
        return {**pages, self._memory.table.rows.name: 1}

    def release(self, request: Request, *, cause: str) -> None:
        """Free everything that a request holds, as soon as no pass in flight needs it.

        The session of a finished turn keeps the record.  The other side keeps the record of a transfer to the peer.
        """
        record = self._records.pop(request.id)
        if request.session and cause == FreeCause.FINISHED:
            self.sessions.keep(request, record)
        elif cause != FreeCause.FINISHED or not self.other_side.hold_finished(request, record):
            self.departures.release(record, cause=cause)

    def _slide(self, request: Request, record: KVRecord, pool: str, frontier: int) -> None:
        """Free the private pages in a pool and unlock those of the tree; the row no longer refers to either."""
        page_size, ledgers = self._memory.page_size, self._memory.ledgers
        first, end = record.frontier(pool) // page_size, frontier // page_size
        border = min(max(first, record.protected_len // page_size), end)
        record.receipt = self._cache.slide(record.receipt, {pool: frontier})
        private = record.held(pool, border, end, page_size=page_size)
        ledgers.free_alone(pool, private, owner=record.owner, cause=FreeCause.SLID)
        record.write(self._memory.table, first, ledgers.without(pool, record.handles[first:end]))
        if self._observer:
            self._observer.notice(Slid(request.id, record.frontier(pool), frontier, pool))
        record.frontiers[pool] = frontier
