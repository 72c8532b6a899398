"""What copies move: to and from the host, over the link to another engine, and out of the pools and back."""

from itertools import compress
from operator import ne

from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.units import request_owner
from swarden.harness.engines.own.content.prefixes import Prefixes
from swarden.harness.engines.own.content.tables import Tables
from swarden.harness.strict.live import Handlers
from swarden.invariants import events


class CopiedContent:
    """Compares the pages that a copy reads, and what arrived with it; then records the pages that it wrote."""

    def __init__(self, engine: Engine, tables: Tables, prefixes: Prefixes) -> None:
        self._memory, self._custody = engine.memory, engine.scheduler.custody
        self._tables = tables
        self._prefixes = prefixes
        self._copies: dict[int, events.CopyBegan] = {}

    @property
    def handlers(self) -> Handlers:
        return {
            events.CopyBegan: self.copy_began,
            events.CopyEnded: self.copy_ended,
            events.Sent: lambda event: self._tables.compare_pages(event.pool, event.pages),
            events.SetAside: self.set_aside,
            events.Filled: self.filled,
        }

    def copy_began(self, event: events.CopyBegan) -> None:
        self._copies[event.job] = event

    def copy_ended(self, event: events.CopyEnded) -> None:
        """Both ends of a copy are unchanged at this event.  A page that changed before its copy is reported once."""
        copy = self._copies.pop(event.job)
        for pool, here, there in copy.pages if event.failure is None else ():
            device, host = self._tables.by_pool[pool], self._tables.host_of(pool)
            on_device, on_host = device.slots_of(here), host.slots_of(there)
            source, read, target, written = (
                (device, on_device, host, on_host) if copy.to_host else (host, on_host, device, on_device)
            )
            changed = self._tables.compare(source, read)
            differ = (source.sums(read).cpu() != target.sums(written).cpu()).view(len(here), -1).any(1).tolist()
            pairs = [
                pair
                for pair in compress(zip(here, there, strict=True), differ)
                if pair[not copy.to_host] not in changed
            ]
            self._tables.note(events.Copied(event.job, pool, pairs))
            target.record(written, source.tags[read])

    def set_aside(self, event: events.SetAside) -> None:
        """Compare the pages of a request that was swapped out, which it still has."""
        owner = request_owner(event.request_id)
        for record in [record for record in self._custody.records if record.owner == owner]:
            for pool in self._memory.pools:
                pages = self._memory.ledgers.pages_of(pool.name, record.handles)
                self._tables.compare_pages(pool.name, [page for page in pages if page])

    def filled(self, event: events.Filled) -> None:
        table = self._tables.by_pool[event.pool]
        [request] = [request for request in self._custody.other_side.requests if request.id == event.request_id]
        [component] = [spec for spec in self._memory.pools if spec.name == event.pool]
        tags = self._prefixes.filled(request, event.places, component)
        slots = table.slots_of(event.pages)
        table.record(slots, tags)
        if event.checksums:
            differ = map(ne, table.page_sums(event.pages), event.checksums)
            self._tables.note(events.Received(event.request_id, event.pool, [*compress(event.pages, differ)]))
