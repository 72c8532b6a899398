"""Storage, L3: the third tier of the hierarchical cache, whose prefetch and write-back are the release's.

Real: from 0.5.17: `prefetch_from_storage` with three policies, revocation, write-back, the controller's four threads
(in lock-step), `HiCacheFile.batch_exists_v2`.
Stand-in: a `dynamic` backend that keeps pages in memory; an operation has two pages instead of 128. Faults:
`storage.fails`, `storage.slow`, `storage.partial`.
Shows: host pages freed during a prefetch.

The release's threads run in lock-step, before each iteration of its event loop: each as far as it comes, unless
`storage.slow` stops it inside an operation of the storage.
"""

import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.limits import MAX_NUMBER
from swarden.harness.core.ops import Reset
from swarden.harness.core.target import Draw, Tier
from swarden.harness.core.validation import shortened
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SECONDS_PER_STEP, SglangCapability, Terms
from swarden.harness.engines.sglang.parts.pair import BOTH
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.launch import Line, count_in
from swarden.harness.kit.lockstep import LockstepQueue, LockstepThread
from swarden.harness.kit.ranks import Ranks
from swarden.harness.kit.settings import Drawn, IfReleaseHas, OneOf, PartOf, drawn, within
from swarden.invariants.events import LOAD_KIND, Owner, PrefetchSized

POLICIES = ("timeout", "wait_complete", "best_effort")  # the first is the default of servers
STORAGE_FAILS, STORAGE_SLOW, STORAGE_PARTIAL = "storage.fails", "storage.slow", "storage.partial"
FAULTS = {
    STORAGE_FAILS: "an operation of the storage behind the host fails: it finds, reads or writes nothing",
    STORAGE_SLOW: "an operation of the storage lasts until the next step, and the thread of the release waits in it",
    STORAGE_PARTIAL: "an operation of the storage finds, reads or writes the first half of its pages",
}
CLOCK_JUMPS, JUMP_S = "clock.jumps", 60.0  # longer than the time-out of a prefetch; only ranks have this fault
STORED = Tier(STORAGE_SLOW, (STORAGE_FAILS, STORAGE_PARTIAL), Reset())
KV, STATES = "kv", "mamba"  # the names of host pools in the releases
USUAL_THRESHOLD = 256  # of a server, in tokens
TICK_S = 1e-6  # between two readings of the clock, which orders the use of nodes
QUEUES = {  # of the controller's threads, in the order of a prefetch
    "prefetch_thread": "prefetch_queue",
    "prefetch_io_aux_thread": "prefetch_buffer",
    "prefetch_sync_thread": "prefetch_sync_queue",
    "backup_thread": "backup_queue",
}


class Storage(SglangCapability, frozen=True):
    """`storage_policy` enables a storage behind the host (L3), and is --hicache-storage-prefetch-policy.

    Fewer than `prefetch_threshold` tokens are not fetched from it.
    """

    storage_policy: Annotated[
        str | None, Drawn(POLICIES), OneOf((None, *POLICIES)), IfReleaseHas("storage"), PartOf("host_ratio")
    ] = None
    prefetch_threshold: Annotated[int, within(1, MAX_NUMBER), Drawn((1, 8)), PartOf("host_ratio")] = 1

    server_need = "storage"
    events = (PrefetchSized,)

    @classmethod
    def drawn(cls, draw: Draw, config: Any, has: Callable[[str], bool]) -> Mapping[str, Any]:
        is_drawn = config.host.is_on and has("storage") and draw.one_of((False, False, True))
        return drawn(draw, cls) if is_drawn else {}

    @classmethod
    def launched(cls, line: Line) -> dict[str, Any]:
        """Any backend is driven as the one of ours."""
        if not line.has("enable-hierarchical-cache") or not (backend := line.word("hicache-storage-backend")):
            return {}
        line.leave_out(f"the code of the storage backend {backend}")
        option = "hicache-storage-backend-extra-config"
        threshold = count_in(line, option, line.mapping(option), "prefetch_threshold", USUAL_THRESHOLD)
        return {
            "storage_policy": line.word("hicache-storage-prefetch-policy", POLICIES[0]),
            "prefetch_threshold": line.scaled(threshold),
        }

    def check(self, config: Any) -> None:
        if self.is_on and not config.host.is_on:
            raise InvalidConfig(f"storage_policy is {shortened(self.storage_policy)} without host_ratio, want null")

    def faults(self, config: Any) -> Mapping[str, str]:
        return FAULTS

    def inapplicable(self, config: Any, release: SglangRelease) -> Collection[str]:
        return () if release.has("sized_prefetches") else (PrefetchSized.__name__,)

    def terms(self, config: Any) -> Terms:
        args = storage_args(self.storage_policy, self.prefetch_threshold)
        return Terms(server_args=args, attributes={"enable_hicache_storage": True})

    def prepare(self, release: SglangRelease, server_args: Any) -> None:
        """Ends the threads of the engine before this one; for a pair, those have ended before its first side."""
        if server_args.disaggregation_mode == BOTH and Ranks.running() == 0:
            LockstepThread.end_all()
        make_storage(release)


def storage_args(policy: str | None = POLICIES[0], threshold: int = 1) -> dict[str, Any]:
    """The arguments of a server with a storage that copies to and from host memory without a buffer of its own."""
    return {
        "hicache_storage_backend": "dynamic",
        "hicache_storage_prefetch_policy": policy,
        "hicache_storage_backend_extra_config": json.dumps({"interface_v1": 1, "prefetch_threshold": threshold}),
    }


def make_storage(release: SglangRelease) -> None:
    """Let the release make a storage in memory."""
    storage = _storage_class(release)
    release.code("StorageBackendFactory").create_backend = staticmethod(lambda *_args, **_options: storage())


def _kept(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the storage whose exceptions are kept: the release's threads take each for a failed operation."""

    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return method(*arguments, **options)
        except Exception as error:
            LockstepThread.unraised.append(error)
            raise

    return call


@cache
def _storage_class(release: SglangRelease) -> type:
    base = release.code("HiCacheFile")

    class MemoryStorage(base):  # type: ignore[misc, valid-type]  # the release has no types here
        """A storage that keeps the tags of pages, by the keys of the release's files, and never overwrites them.

        Which prefixes it has is answered by the release's own code for files.
        """

        def __init__(self) -> None:
            self.config_suffix = self.tp_config_suffix = ""
            self.swarden_port: Any = None  # the SglangStorage of this engine

        @_kept
        def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:
            keys = keys[: self.swarden_port.begin(len(keys))]
            return next((at for at, key in enumerate(keys) if key not in self.swarden_port.pages), len(keys))

        @_kept
        def batch_exists_v2(self, keys: Sequence[str], *args: Any, **kwargs: Any) -> Any:
            return super().batch_exists_v2(keys[: self.swarden_port.begin(len(keys))], *args, **kwargs)

        def batch_get_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> Any:
            return self._batch(keys, host_indices, self._read_page)

        def batch_set_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> Any:
            return self._batch(keys, host_indices, self._write_page)

        @_kept
        def _batch(self, keys: Sequence[str], host_indices: Any, copy: Any) -> list[bool]:
            self.swarden_port.begin(len(keys))
            slots = host_indices[:: len(host_indices) // len(keys)].tolist()
            return [copy(KV, key, None, slot) for key, slot in zip(keys, slots, strict=True)]

        @_kept
        def _batch_io_v2(self, transfers: Sequence[Any], copy: Any) -> Any:
            self.swarden_port.begin(sum([len(transfer.keys or ()) for transfer in transfers]))
            return super()._batch_io_v2(transfers, copy)

        def _read_page(self, pool_name: str, key: str, host_pool: Any, slot: int) -> bool:
            return bool(self.swarden_port.read(self._log_key(pool_name, key), str(pool_name), slot))

        def _write_page(self, pool_name: str, key: str, host_pool: Any, slot: int) -> bool:
            return bool(self.swarden_port.write(self._log_key(pool_name, key), str(pool_name), slot))

        def _collect_existing_component_keys(self, *args: Any) -> set[str]:
            return {f"{key}.bin" for key in self.swarden_port.pages}

    return MemoryStorage


class SglangStorage:
    """The storage of one engine, its threads, and the host memory that prefetches hold.

    `on_host` has the tags of each host pool, by the release's name for it; `pages` has those of stored pages, by key.
    """

    def __init__(self, tree: Any, on_host: Mapping[str, dict[int, int]], faults: FaultPlan) -> None:
        self._tree, self._on_host, self._faults = tree, on_host, faults
        self._controller = tree.cache_controller
        self._controller.storage_backend.swarden_port = self
        self.pages = dict[str, Sequence[int]]()
        self.on_stored: Callable[[int, Sequence[int]], None] | None = None  # called with a slot and the page's tags
        self._left = 0  # the pages that the operation under way still copies
        self._is_slow, self._last_operation = False, 0
        self._clock = EngineClock(TICK_S)
        kinds = [*type(tree).__mro__, *type(self._controller).__mro__]
        modules = [sys.modules[kind.__module__] for kind in kinds]
        modules += filter(None, [sys.modules.get("sglang.srt.utils.poll_timer")])
        self._timed = [module for module in modules if "time" in vars(module)]
        self._clock.serve(self._timed)  # a prefetch begins when its request is submitted

    def report_sizes(self, notice: Callable[[PrefetchSized], None]) -> None:
        """Report from now on the memory that a prefetch gets once the storage has answered."""

        def allocate(original: Callable[..., Any], operation: Any, wanted: int, **options: Any) -> Any:
            slots, got = original(operation, wanted, **options)
            notice(PrefetchSized(wanted, got if slots is not None else 0))
            return slots, got

        intercept(self._controller, "allocate_storage_hit", allocate)

    def step(self) -> None:
        """Let the release's threads go as far as they come."""
        jumps = CLOCK_JUMPS in self._faults.known and self._faults.fires(CLOCK_JUMPS)
        self._clock.now_s += JUMP_S if jumps else SECONDS_PER_STEP
        self._clock.serve(self._timed)
        for name, queue in QUEUES.items():
            self._is_slow = False
            while hasattr(self._controller, name) and getattr(self._controller, queue).items and not self._is_slow:
                thread = getattr(self._controller, name)
                assert thread.is_alive(), f"{name} has ended with work in its queue"
                before = thread.held_by
                thread.step()
                if thread.held_by is not None and Ranks.current is not None:
                    if thread.held_by is before:
                        break
                    Ranks.current.let_others_go_on()
        if LockstepThread.unraised:
            raise LockstepThread.unraised.pop()

    @property
    def is_busy(self) -> bool:
        """Whether an operation is under way, or host memory waits for its release."""
        ongoing = (self._tree.ongoing_prefetch, self._tree.ongoing_backup)
        return any(ongoing) or any(queue.items for queue in self._queues)

    def begin(self, num_pages: int) -> int:
        """Begin an operation of the storage on so many pages. Returns how many of them it has, or copies."""
        thread = LockstepThread.running
        while thread is not None and self._faults.fires(STORAGE_SLOW):
            self._is_slow = True
            thread.wait()
        is_partial = self._faults.fires(STORAGE_PARTIAL)
        self._left = 0 if self._faults.fires(STORAGE_FAILS) else num_pages // 2 if is_partial else num_pages
        return self._left

    def read(self, key: str, pool: str, slot: int) -> bool:
        """Copy a page to the slots from `slot` on; False if the storage lacks it, or the operation copies no more."""
        self._left -= 1
        if key not in self.pages or self._left < 0:
            return False
        self._on_host[pool].update(enumerate(self.pages[key], start=slot))
        return True

    def write(self, key: str, pool: str, slot: int) -> bool:
        """Keep the page that begins with a slot, unless the storage has it; False if the operation copies no more."""
        self._left -= 1
        if self._left >= 0:
            tags, size = self._on_host[pool], 1 if pool == STATES else self._tree.page_size
            stored = self.pages.setdefault(key, tuple([tags.get(place, 0) for place in range(slot, slot + size)]))
            if self.on_stored is not None:
                self.on_stored(slot, stored)
        return self._left >= 0

    def operations(self, pool: str) -> Iterator[tuple[Owner, Any, int]]:
        """The prefetches in a queue or at work, each with its slots in a host pool.

        Of these so many at the front may be those of the tree already, or free: what is read in whole. One that ended
        before it got memory of full attention is read by no thread.
        """
        ongoing = [part for info in self._tree.ongoing_prefetch.values() for part in info]
        items = [*ongoing, *[item for queue in self._queues for item in queue.items]]
        operations = [getattr(item, "operation", item) for item in items]
        for operation in {id(operation): operation for operation in operations}.values():
            if not hasattr(operation, "request_id") or (operation.host_indices is None and operation.is_terminated()):
                continue
            if not hasattr(operation, "swarden_id"):
                self._last_operation = operation.swarden_id = self._last_operation + 1
            beside = getattr(operation, "pool_transfers", None) or ()
            of_pool = [part for part in beside if part.name == pool and part.indices_from_pool is None]
            parts = [part.host_indices for part in of_pool] + ([operation.host_indices] if pool == KV else [])
            slots = [slot for part in parts if part is not None for slot in part.tolist()]
            num_read = len(slots) if getattr(operation, "pool_transfers_done", True) else 0
            num_read = operation.completed_tokens if pool == KV else num_read
            yield Owner(LOAD_KIND, operation.swarden_id), slots, num_read

    def to_be_freed(self, pool: str) -> Any:
        """The slots of a host pool that the scheduler frees when it looks next."""
        controller = self._controller
        extra = getattr(controller, "extra_host_mem_release_queues", {})
        queue = controller.host_mem_release_queue if pool == KV else extra.get(pool)
        return [slot for part in queue.items for slot in part.tolist()] if queue is not None else []

    @property
    def _queues(self) -> list[LockstepQueue]:
        extra = getattr(self._controller, "extra_host_mem_release_queues", {}).values()
        return [queue for queue in (*vars(self._controller).values(), *extra) if isinstance(queue, LockstepQueue)]
