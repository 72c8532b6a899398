"""The KV memory of an engine: storage, ledgers and request table, as one value; and the poison of its freed pages."""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from swarden.engine_under_test.components import Component
from swarden.engine_under_test.config import EngineConfig, PoolSpec
from swarden.engine_under_test.pools.kv_store import KVStore
from swarden.engine_under_test.pools.ledger import Ledger
from swarden.engine_under_test.pools.paired import PairedLedgers
from swarden.engine_under_test.ports import Backing, Observer, SlotLayout
from swarden.engine_under_test.strict import both
from swarden.engine_under_test.units import num_pages
from swarden.invariants.events import Event, Freed

ROWS = "rows"
HOST = torch.device("cpu")


def tags(_pool: PoolSpec) -> SlotLayout:
    """A layout with one integer per slot."""
    return SlotLayout(torch.int64)


@dataclass(frozen=True, slots=True)
class HostMemory:
    """The pools of the host tier, in the order of those on the device: storage and ledgers."""

    pools: tuple[PoolSpec, ...]
    store: KVStore
    ledgers: tuple[Ledger, ...]

    @classmethod
    def for_config(
        cls, config: EngineConfig, observer: Observer | None, *, layout: Callable[[PoolSpec], SlotLayout]
    ) -> "HostMemory | None":
        """Empty pools of the configured sizes, with slots as on the device; None if none is configured."""
        if not config.host_pools:
            return None
        layouts = {
            spec.name: layout(on_device) for spec, on_device in zip(config.host_pools, config.pools, strict=True)
        }
        store = KVStore(
            config.host_pools,
            page_size=config.page_size,
            layout=lambda spec: layouts[spec.name]._replace(device=HOST),
            is_pinned=any(layout.device.type == "cuda" for layout in layouts.values()),
        )
        observer = both(observer, Poisoner(store) if config.poison_freed_pages else None)
        ledgers = [
            Ledger(spec.name, spec.num_pages, reuse=config.page_reuse, observer=observer) for spec in config.host_pools
        ]
        return cls(config.host_pools, store, tuple(ledgers))


class Poisoner:
    """An observer that overwrites each freed page, after the passes that may still read it have completed."""

    def __init__(self, store: KVStore) -> None:
        self._store = store
        self._pools = frozenset(store.pools)
        self._fenced: list[Freed] = []

    def notice(self, event: Event) -> None:
        if isinstance(event, Freed) and event.pool in self._pools:
            if event.after:
                self._fenced.append(event)
            else:
                self._store.poison(event.pool, event.units)

    def complete(self, launch: int) -> None:
        """Poison the pages that were freed behind passes up to `launch`, which have completed."""
        done = [freed for freed in self._fenced if freed.after <= launch]
        self._fenced = [freed for freed in self._fenced if freed.after > launch]
        for freed in done:
            self._store.poison(freed.pool, freed.units)


class RequestTable:
    """A line of page handles per row, by position // page_size.

    The rows are a ledger's units; row 0 is padding.  A freed row is not cleared: its entries beyond the pages of the
    owner are stale and must not be read.
    """

    def __init__(self, rows: Ledger, *, width: int) -> None:
        self.rows = rows
        self.width = width  # pages
        self._handles = array("q", [0]) * (width * (rows.capacity + 1))

    def write(self, row: int, first: int, handles: Sequence[int]) -> None:
        """Write handles from page index `first` on."""
        assert first + len(handles) <= self.width, (
            f"row {row}: {first} + {len(handles)} pages do not fit in a width of {self.width}"
        )
        begin = row * self.width + first
        self._handles[begin : begin + len(handles)] = array("q", handles)

    def read(self, row: int, first: int, end: int) -> "array[int]":
        """The handles of page indices [first, end)."""
        return self._handles[row * self.width + first : row * self.width + end]


@dataclass(frozen=True, slots=True)
class KVMemory:
    """The storage of every pool, the ledgers of its pages, and the request table."""

    pools: tuple[Component, ...]
    page_size: int
    store: KVStore
    ledgers: PairedLedgers
    table: RequestTable
    poisoner: Poisoner | None = None
    host: HostMemory | None = None

    @classmethod
    def for_config(
        cls,
        config: EngineConfig,
        observer: Observer | None,
        backing: Backing | None = None,
        *,
        layout: Callable[[PoolSpec], SlotLayout] = tags,
    ) -> "KVMemory":
        """Empty pools of the configured sizes; a slot holds a tag unless `layout` says otherwise."""
        host = HostMemory.for_config(config, observer, layout=layout)
        store = KVStore(config.pools, page_size=config.page_size, layout=layout)
        poisoner = Poisoner(store) if config.poison_freed_pages else None
        observer = both(observer, poisoner)
        ledgers = [
            Ledger(spec.name, spec.num_pages, reuse=config.page_reuse, observer=observer, backing=backing)
            for spec in config.pools
        ]
        rows = Ledger(ROWS, config.max_running_requests, reuse=config.page_reuse, observer=observer)
        return cls(
            config.components,
            config.page_size,
            store,
            PairedLedgers(ledgers, observer=observer),
            RequestTable(rows, width=num_pages(config.max_context_len, config.page_size)),
            poisoner,
            host,
        )

    @property
    def completed_launch(self) -> int:
        """The newest pass such that it and all earlier passes have completed."""
        return self.table.rows.completed_launch

    def complete(self, launch: int) -> None:
        """Free the units that waited for launches up to `launch`, which have completed."""
        self.ledgers.complete(launch)
        self.table.rows.complete(launch)
        if self.poisoner:
            self.poisoner.complete(launch)
