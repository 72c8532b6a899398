"""Hierarchical cache: host pools, controller and tree are the release's; the copy kernels are stand-ins.

Real: from 0.5.12 (states, and a decode side with a tree: 0.5.17): `init_hicache`, `HybridCacheController` or
`HiCacheController`, host pools, write-through, write-back, load-back, host eviction.
Stand-in: copy kernels, CUDA streams and events: a backup is made when the release waits for it or asks, a load when its
batch is launched at the latest; it ends for the release when it asks, or with that pass. Faults: `host.fails`,
`host.slow`.
Shows: pages reused during a copy, wrong copies.
"""

import atexit
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Annotated, Any

import msgspec

import swarden.invariants.events as seen
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.limits import MAX_NUMBER
from swarden.harness.core.ops import Flush
from swarden.harness.core.target import Draw, Tier
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import ONE_TREE, SglangCapability, SglangEngine, SglangPart, Terms
from swarden.harness.engines.sglang.parts.sidecar import SIDECAR, SidecarTags, kv_of
from swarden.harness.engines.sglang.parts.storage import STORED, SglangStorage
from swarden.harness.engines.sglang.pools import EVERYTHING
from swarden.harness.engines.sglang.states import states_of
from swarden.harness.kit.launch import Line, table
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs, OneOf, drawn, within
from swarden.harness.kit.streams import Devices, Stream, StreamCopy, StreamEvent
from swarden.invariants.events import BACKUP_KIND, LOAD_KIND, TREE_KIND, Owner
from swarden.invariants.view import Holding, NodeView, PoolView

WRITE_POLICIES = WRITE_THROUGH, WRITE_SELECTED, WRITE_BACK = "write_through", "write_through_selective", "write_back"
DRAWN_POLICIES = (WRITE_THROUGH, WRITE_SELECTED, WRITE_THROUGH, WRITE_BACK)
HOST_TIER = "host_tier"  # the feature of a release
HOST_FAILS, HOST_SLOW = "host.fails", "host.slow"
FAULTS = {
    HOST_FAILS: "a host pool refuses an allocation, as if the pool were full",
    HOST_SLOW: "a copy that nothing waits for stays in flight until the release asks again",
}
HOST = "host "  # before the name of a device pool, in that of its host pool
FIRST_UNIT = 1  # a release hands out host page 0, and unit 0 is padding
FENCES = ("load_fence_stream", "write_fence_stream")  # Scheduler.__init__ sets them, in releases that have them
READ_DONE_EVENTS = ("war_fastpath_read_done_event", "shared_read_done_event")  # in 0.5.17, and renamed by 0.5.23
ROUNDS_TO_END = 20  # of the scheduler and the storage's threads, for copies without faults


class HostTier(SglangCapability, frozen=True):
    """`host_ratio` enables the hierarchical cache, and is the size of each host pool in units of its device pool.

    A load from the host with fewer than `load_back_threshold` tokens of full attention is not started.
    """

    host_ratio: Annotated[Annotated[float, msgspec.Meta(gt=0, le=16)] | None, IfReleaseHas(HOST_TIER)] = None
    write_policy: Annotated[str, OneOf(WRITE_POLICIES), Drawn(DRAWN_POLICIES)] = WRITE_THROUGH
    load_back_threshold: Annotated[int, within(1, MAX_NUMBER), Drawn((10, 1))] = 10

    needs = (Needs("host_ratio", ONE_TREE),)
    tree = "HiRadixCache"
    server_need = "host tier"
    events = (seen.CopiedIn,)
    launch_table = table(
        host_ratio=lambda line: line.number("hicache-ratio", 2.0) if line.has("enable-hierarchical-cache") else None,
        write_policy=(Line.word, "hicache-write-policy", WRITE_THROUGH),
    )

    @classmethod
    def drawn(cls, draw: Draw, config: Any, has: Callable[[str], bool]) -> Mapping[str, Any]:
        """Half have a hierarchical cache, if the release has one."""
        ratio = draw.one_of((None, draw.one_of(ratios(has)))) if has(HOST_TIER) else None
        return {"host_ratio": ratio, **drawn(draw, cls)}

    def terms(self, config: Any) -> Terms:
        args = {
            "enable_hierarchical_cache": True,
            "hicache_ratio": self.host_ratio,
            "hicache_write_policy": self.write_policy,
        }
        of_decode = {"enable_decode_hicache": config.decode_tree.is_on}
        return Terms(server_args=args, attributes={"enable_hierarchical_cache": True, **of_decode})

    def faults(self, config: Any) -> Mapping[str, str]:
        return FAULTS

    def limits(self, config: Any) -> Mapping[str, Any]:
        """Only nodes without units on the device are `evictable_host_leaves` (0.5.23, components/full.py:262)."""
        return {"writes_through": self.write_policy == WRITE_THROUGH, "keeps_live_copies": True}

    def shape(self, config: Any) -> Mapping[str, Any]:
        return {
            "uses_before_backup": 2 if self.write_policy == WRITE_SELECTED else 1,
            "tiers": [Tier(HOST_SLOW, (HOST_FAILS,), Flush()), *[STORED] * config.storage.is_on],
        }

    def check(self, config: Any) -> None:
        """A decode side restores the part of a prompt that its tree has on the host."""
        if self.is_on and config.side.is_decode and (config.has_window or not config.decode_tree.is_on):
            raise InvalidConfig("host_ratio of a decode side needs decode_tree and no sliding_window, want null")

    def check_release(self, config: Any, release: SglangRelease) -> None:
        ratio = self.host_ratio or 0
        if ratio < 1 and not release.has("small_host_pools"):
            raise InvalidConfig(f"host_ratio is {ratio}, want at least 1 for sglang {release.text}")
        if config.side.is_decode and not release.has("decode_host_tier"):
            raise InvalidConfig(f"host_ratio is {ratio} on a decode side, want null for sglang {release.text}")
        if config.states.is_on and not release.has("state_host_tier"):
            raise InvalidConfig(f"host_ratio is {ratio} with state_slots, want null for sglang {release.text}")

    def wrapped(self, release: SglangRelease, tree: Any, server_args: Any, params: Any) -> Any:
        if type(tree).__name__ != "HiRadixCache":  # which makes its host pool itself
            tree.init_hicache(server_args, params)
        tree.load_back_threshold = self.load_back_threshold  # no setting of a release
        if hasattr(tree, "shutdown"):
            atexit.unregister(tree.shutdown)  # atexit would keep the tree, and so its pools, until the process ends
        return tree

    def inapplicable(self, config: Any, release: SglangRelease) -> Collection[str]:
        return ("evictions_serve_takes",)  # an eviction for a load is not told from one for a pass

    def attach(self, engine: SglangEngine) -> Sequence[SglangPart]:
        tree = getattr(engine.memory.tree, "inner", engine.memory.tree)  # which a StreamingSession wraps
        kind = UnifiedCopies if engine.release.is_unified(tree) else RadixCopies
        return [SglangHostTier(engine, tree, kind(engine.release, tree))]


def ratios(has: Callable[[str], bool]) -> Sequence[float]:
    """The sizes of host pools to draw, in units of the device pools."""
    return (1.0, 0.5, 2.0, 0.25) if has("small_host_pools") else (1.0, 2.0)


class HostCopies:
    """The copies on the host: the names of the pools, their components, and the pools, in one order."""

    names: Sequence[str]
    components: Sequence[Any]
    pools: Sequence[Any]

    def of(self, node: Any) -> list[tuple[Any, int]]:
        """Per component, the slots of a node on the host (None: no copy), and the number of locks on them."""
        return [(None, 0)]

    def lock(self, copy: Any) -> tuple[Any, Any] | None:
        """The node and the receipt, if there is one, of the lock of a copy in flight; None: it has no lock."""
        return None

    def evict(self) -> None:
        """Drop the copies of nodes that are not locked."""

    def offloaded(self) -> Iterable[tuple[int, Any]]:
        """The slots on the host of each copy of a request, by number."""
        return ()


class UnifiedCopies(HostCopies):
    """The copies of UnifiedRadixCache: each component of a node has its own, and a lock has a receipt."""

    def __init__(self, release: SglangRelease, tree: Any) -> None:
        kinds, names = release.code("ComponentType"), release.code("PoolName")
        host_names = {kinds.FULL: names.KV, kinds.SWA: names.SWA, kinds.MAMBA: names.MAMBA}
        self._tree = tree
        self.components = [kind for kind in host_names if kind in tree.tree_components]
        self.names = [host_names[kind].value for kind in self.components]
        self.pools = tuple([tree.host_pool_group.get_pool(host_names[kind]) for kind in self.components])

    def of(self, node: Any) -> list[tuple[Any, int]]:
        data = [node.component_data[kind] for kind in self.components]
        return [(part.host_value, part.host_lock_ref) for part in data]

    def lock(self, copy: Any) -> tuple[Any, Any] | None:
        """A write-back has no lock."""
        node, receipt, *_ = copy if isinstance(copy, tuple) else (copy, None)
        if receipt is None:
            return None
        return self._tree.tree_core.node_by_id(node) if isinstance(node, int) else node, receipt

    def evict(self) -> None:
        for component in self._tree.components:
            self._tree.evict_host(EVERYTHING, component)


class RadixCopies(HostCopies):
    """The copies of HiRadixCache, which has one pool and no receipts."""

    def __init__(self, release: SglangRelease, tree: Any) -> None:
        self._tree, self.names = tree, [release.code("PoolName").KV.value]
        self.components = [release.code("ComponentType").FULL]
        self.pools = (getattr(tree, "full_kv_pool_host", tree.token_to_kv_pool_host),)

    def of(self, node: Any) -> list[tuple[Any, int]]:
        return [(node.host_value, node.host_ref_counter)]

    def lock(self, copy: Any) -> tuple[Any, Any]:
        """An eviction waits for its write-backs, which have no lock."""
        is_write_back = self._tree.cache_controller.write_policy == WRITE_BACK and self._tree.ongoing_write_through
        assert not is_write_back, f"write-backs in flight after a step: nodes {[*self._tree.ongoing_write_through]}"
        return copy[0] if isinstance(copy, tuple) else copy, None

    def evict(self) -> None:
        self._tree.evict_host(EVERYTHING)


class SglangHostTier(SglangPart):
    """The host pools of one engine, and the tag of each of their slots."""

    def __init__(self, engine: SglangEngine, tree: Any, copies: "HostCopies") -> None:
        self._engine, self._tree, self._copies = engine, tree, copies
        self._page_size, self._states = tree.page_size, states_of(engine.memory.rows)
        self.host_pools = [HOST + name for name in engine.forward.pool_names]
        self._state = engine.release.code("ComponentType").MAMBA
        self._streams = dict[int, Stream]()  # with copies, by identity
        self._awaited = list[tuple[int, Stream, int]]()  # by a pass: its launch, and the copies of a stream before it
        self._on_host = {name: dict[int, int]() for name in self._copies.names}
        for index, (tags, pool) in enumerate(zip(self._on_host.values(), self._copies.pools, strict=True)):
            is_state = self._copies.components[index] == self._state
            self._replace_copies(index, pool, self._states if is_state else kv_of(engine.forward.tags[index]), tags)
        if isinstance(of_kv := engine.forward.tags[0], SidecarTags):
            rows = self._on_host[SIDECAR] = {}
            self._replace_copies(0, tree.cache_controller.mem_pool_host.get_pool(SIDECAR), of_kv.rows, rows)
        has_storage = getattr(tree.cache_controller, "storage_backend", None) is not None
        self.storage = SglangStorage(tree, self._on_host, engine.faults) if has_storage else None
        if self.storage is not None and hasattr(tree.cache_controller, "allocate_storage_hit"):
            self.storage.report_sizes(engine.log.notice)  # not that of a decode side's offload
        for fence in FENCES:
            if hasattr(tree.cache_controller, fence):
                setattr(tree.cache_controller, fence, engine.scheduler.forward_stream)

    def begin_step(self) -> None:
        if self.storage is not None:
            self.storage.step()
        if self._engine.scheduler._engine_paused or not self._engine.requests.unfinished:
            self._end_copies()

    def cleared(self) -> None:
        self._drop_copies()
        pools, before = self._engine.memory.allocators[: len(self._engine.forward.tags)], -1
        while self.storage is not None and before < (free := sum([int(pool.available_size()) for pool in pools])):
            before = free  # copies to the storage kept pages on the host, and so others on the device
            self._engine.flush()
            self._drop_copies()

    @property
    def is_busy(self) -> bool:
        """Whether the storage or a copy on its way there is at work."""
        return self.storage is not None and self.has_work

    @property
    def has_work(self) -> bool:
        is_stored = self.storage is not None and self.storage.is_busy
        return bool(is_stored or self._tree.ongoing_write_through or self._tree.ongoing_load_back)

    @property
    def is_in_flight(self) -> bool:
        return any(stream.num_done < stream.end for stream in self._streams.values())

    def _end_copies(self) -> None:
        """End the copies that do not stay in flight, even if the release does not ask, as in a pause."""
        for stream in self._streams.values():
            stream.has_done(stream.end)

    def lose_kv(self) -> bool:
        for tags in self._on_host.values():
            tags.clear()
        return self.is_in_flight

    def pools(self, nodes: Sequence[NodeView]) -> Iterator[PoolView]:
        """The host pools; the tree owns a page there from the moment at which its copy begins."""
        pools = self._copies.pools
        for index, (name, kind, pool) in enumerate(zip(self.host_pools, self._copies.components, pools, strict=True)):
            held = [
                Holding(
                    Owner(TREE_KIND, node.id), [unit for unit in node.copies[index] if unit], True, node.pins[index]
                )
                for node in nodes
                if node.copies[index]
            ]
            lists = [pool.free_slots, *getattr(pool, "release_slots", ())]
            free = list(chain.from_iterable([self._units(kind, slots.tolist()) for slots in lists]))
            if self.storage is not None:
                held += self._prefetches(self._copies.names[index], kind, free, held)
            held += [
                Holding(Owner(BACKUP_KIND, number), self._units(kind, slots.tolist()), False)
                for number, slots in self._copies.offloaded()
            ]
            unit, size = ("slot", 1) if kind == self._state else ("page", self._page_size)
            yield PoolView(name, unit, pool.size // size, free, (), held)

    def _prefetches(self, name: str, kind: Any, free: Sequence[int], held: Sequence[Holding]) -> Iterator[Holding]:
        """The units that are to be freed, and those of prefetches that are neither these, nor free, nor of the tree."""
        assert self.storage is not None
        waiting = self._units(kind, self.storage.to_be_freed(name))
        others = {*free, *waiting, *[unit for holding in held for unit in holding.units]}
        yield Holding(Owner(LOAD_KIND), waiting, False)
        for owner, slots, done in self.storage.operations(name):
            under_way = {*self._units(kind, slots[done:])}
            units = [unit for unit in self._units(kind, slots) if unit in under_way or unit not in others]
            yield Holding(owner, units, False)

    def copies(self, node: Any) -> tuple[tuple[Sequence[int], ...], Sequence[int]]:
        copies, count = self._copies.of(node), len(node.key) // self._page_size
        units = [
            () if slots is None else self._pages(kind, slots, count)
            for kind, (slots, _) in zip(self._copies.components, copies, strict=True)
        ]
        return tuple(units), tuple([locks for _, locks in copies])

    def locks(self) -> Iterator[tuple[str, Any, Any]]:
        tree = self._tree
        for kind, copies in ((BACKUP_KIND, tree.ongoing_write_through), (LOAD_KIND, tree.ongoing_load_back)):
            for lock in filter(None, map(self._copies.lock, copies.values())):
                yield kind, *lock

    def _drop_copies(self) -> None:
        """End the copies in flight, and drop all copies on the host that are not locked."""
        self._tree.check_hicache_events()
        if self.storage is not None and self.has_work:
            for _ in range(ROUNDS_TO_END):
                self.storage.step()
                self._tree.check_hicache_events()
        self._copies.evict()

    def launching(self, batch: Any) -> None:
        """Each layer of a pass waits for the load that its batch began, and for no other."""
        counter = self._tree.cache_controller.layer_done_counter
        counter.set_consumer(batch.hicache_consumer_index)
        for layer in range(counter.num_layers):
            counter.wait_until(layer)

    def launched(self, batch: Any, result: Any) -> None:
        """Note a launched pass for the streams; a decode is a CUDA graph, which has events for the end of its reads.

        So has the verification of NGRAM from 0.5.18 on; before, the barrier waits for its whole pass.
        """
        self._engine.scheduler.forward_stream.behind = last = self._engine.forward.passes.last_launch
        begun = [stream for stream in self._streams.values() if stream.num_made > stream.num_done]
        self._awaited += [(last, stream, stream.num_made) for stream in begun]
        has_event = self._engine.release.has("verification_ends_its_reads") or not batch.spec_algorithm.is_ngram()
        if has_event and not batch.forward_mode.is_extend():
            vars(self._engine.scheduler.swarden_runner).update({name: StreamEvent() for name in READ_DONE_EVENTS})

    def completed(self, result: Any) -> None:
        """The loads for which the pass waited have ended."""
        last = result.swarden_pass.launch
        for launch, stream, count in self._awaited:
            if launch <= last:
                stream.make(count)
        self._awaited = [awaited for awaited in self._awaited if awaited[0] > last]

    def _replace_copies(self, index: int, pool: Any, on_device: Any, on_host: dict[int, int]) -> None:
        """Replace the copy kernels of a host pool by copies of tags, and let a fault refuse its allocations.

        Its slots are those of the component of this index, also if it is the pool of a sidecar.
        """
        alloc = pool.alloc

        def back_up(_pool: Any, host: Any, device: Any, *_: Any) -> None:
            places, slots = host.tolist(), device.tolist()
            self._put(lambda: on_host.update(zip(places, on_device.read(slots), strict=True)))

        def load(_pool: Any, host: Any, device: Any, *_: Any, **_options: Any) -> None:
            """Copy to the device, under the writes of passes that end after the copy."""
            places, slots = host.tolist(), device.tolist()
            self._engine.forward.notice_copied(index, slots, Owner(LOAD_KIND))
            written = sorted(self._racing_slots(index).intersection(slots))
            tags = on_device.read(written)

            def make() -> None:
                on_device.write(slots, [on_host.get(place, 0) for place in places])
                on_device.write(written, tags)

            self._put(make)

        def alloc_or_fail(*args: Any, **kwargs: Any) -> Any:
            return None if self._engine.faults.fires(HOST_FAILS) else alloc(*args, **kwargs)

        pool.backup_from_device_all_layer, pool.load_to_device_per_layer = back_up, load
        pool.alloc = alloc_or_fail

    def _racing_slots(self, index: int) -> set[int]:
        """The slots of a pool that passes in flight write, of those for which the current stream does not wait."""
        passes = self._engine.forward.passes.in_flight
        racing = [flight for flight in passes if flight.launch > Devices.current.behind]
        return {slot for flight in racing for entry in flight.entries for slot in entry.written(index)}

    def _put(self, make: Callable[[], None]) -> None:
        self._streams[id(Devices.current)] = Devices.current
        Devices.current.put(StreamCopy(make, partial(self._engine.faults.fires, HOST_SLOW)))

    def _units(self, kind: Any, slots: Sequence[int]) -> list[int]:
        page = 1 if kind == self._state else self._page_size
        return [slot // page + FIRST_UNIT for slot in slots[::page]]

    def _pages(self, kind: Any, slots: Any, count: int) -> list[int]:
        """The units of a node's copy, one per page; of a state that of the last page."""
        units = self._units(kind, slots.tolist())
        return [*[0] * (count - len(units)), *units] if kind == self._state else units
