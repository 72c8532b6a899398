"""Storage of a decode side: the release's manager and controller write KV to the host and on to a storage.

Real: from 0.5.17, full attention: `DecodeKVCacheOffloadManager` with controller, host pool and backup thread.
Stand-in: that of the storage.
Shows: pages freed before their copy; two prefixes with one key.

The manager takes the place of the tree in SglangHostTier and SglangStorage.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Annotated, Any, NamedTuple

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SglangCapability, SglangEngine, SglangPart, Terms
from swarden.harness.engines.sglang.parts import host_tier, storage
from swarden.harness.engines.sglang.parts.host_tier import HostCopies, SglangHostTier
from swarden.harness.engines.sglang.parts.pair import OF_DECODE
from swarden.harness.engines.sglang.parts.storage import make_storage, storage_args
from swarden.harness.engines.sglang.requests import held
from swarden.harness.kit.launch import Line, table
from swarden.harness.kit.released_code import known
from swarden.harness.kit.settings import IfReleaseHas, Needs
from swarden.harness.kit.tags import chain
from swarden.invariants.events import CopiedIn, PrefixesCompared, WrongSlot
from swarden.invariants.reference import namespace_tag

HOST_POOL = "host full"  # its name in snapshots
OF_SCHEDULER = ("req_to_token_pool", "token_to_kv_pool_allocator", "tree_cache", "server_args")
NO_TAG = -1  # of a position behind the last token of a request: no slot has it


class DecodeOffload(SglangCapability, frozen=True):
    """With `decode_offload`, which is --disaggregation-decode-enable-offload-kvcache, a decode side stores its outputs.

    It writes their KV to a storage, through a host pool as large as its own.
    """

    decode_offload: Annotated[bool, IfReleaseHas("decode_offload")] = False

    needs = (Needs("decode_offload", {**OF_DECODE, "sliding_window": (None,), "host_ratio": (None,)}),)
    launch_table = table(decode_offload=(Line.has, "disaggregation-decode-enable-offload-kvcache"))
    events = (CopiedIn, PrefixesCompared)

    def faults(self, config: Any) -> Mapping[str, str]:
        return {**host_tier.FAULTS, **storage.FAULTS}

    def uses(self, config: Any) -> Collection[str]:
        return (host_tier.HOST_FAILS, *storage.FAULTS)

    def terms(self, config: Any) -> Terms:
        policy = {"hicache_ratio": 1.0, "hicache_write_policy": config.host.write_policy}
        return Terms(server_args={"disaggregation_decode_enable_offload_kvcache": True, **policy, **storage_args()})

    def equip(self, release: SglangRelease, scheduler: Any) -> None:
        scheduler.decode_offload_manager = _manager(release, scheduler)

    def attach(self, engine: SglangEngine) -> Sequence[SglangPart]:
        manager = engine.scheduler.decode_offload_manager
        host = SglangHostTier(engine, manager, OffloadCopies(engine.release, manager))
        return [host, StoredPrefixes(engine)]


def _manager(release: SglangRelease, scheduler: Any) -> Any:
    """The release's manager, with what SglangHostTier and SglangStorage read of a tree."""
    make_storage(release)
    kind = release.code("OffloadManager")
    wanted = {**{name: vars(scheduler)[name] for name in OF_SCHEDULER}, "tp_group": scheduler.tp_cpu_group}
    manager = kind(**known(wanted, kind))
    manager.ongoing_write_through = manager.ongoing_offload
    manager.ongoing_load_back, manager.ongoing_prefetch = {}, {}
    manager.check_hicache_events = manager.check_offload_progress
    return manager


class OffloadCopies(HostCopies):
    """The copies of a manager: they are of requests, not of nodes, and it keeps none on the host."""

    def __init__(self, release: SglangRelease, manager: Any) -> None:
        self._manager = manager
        self.names, self.components = [release.code("PoolName").KV.value], [release.code("ComponentType").FULL]
        self.pools = (manager.decode_host_mem_pool,)

    def offloaded(self) -> Iterator[tuple[int, Any]]:
        """The slots on the host of each copy on its way from the device to the host, or from there to the storage."""
        for number, copy in (*self._manager.ongoing_offload.items(), *self._manager.ongoing_backup.items()):
            yield number, copy[1]


class Wanted(NamedTuple):
    """What a slot on the host must have: the tag of a request's tokens up to a position."""

    request_id: int
    position: int
    tag: int


class StoredPrefixes(SglangPart):
    """Compares the pages that a storage gets, or has under their keys, with the tokens of the requests.

    The first copy of a request begins behind the whole pages of its prompt, each further one where the last ended.
    """

    def __init__(self, engine: SglangEngine) -> None:
        self._manager = manager = engine.scheduler.decode_offload_manager
        self._notice, self._page_size = engine.log.notice, manager.page_size
        self._wanted = dict[int, Wanted]()  # by slot on the host
        self._ends = dict[int, int]()  # of what was copied, by request
        offload, write = manager.offload_kv_cache, manager.cache_controller.write

        def offload_of(req: Any) -> Any:
            def write_of(**options: Any) -> Any:
                on_host = write(**options)
                if on_host is not None:
                    self._begin(req, on_host.tolist())
                return on_host

            manager.cache_controller.write = write_of
            return offload(req)

        manager.offload_kv_cache = offload_of
        manager.cache_controller.storage_backend.swarden_port.on_stored = self._stored

    def ended(self) -> list[Any]:
        reqs = {id(copy[0]): copy[0] for copy in self._manager.ongoing_offload.values() if copy[0].finished()}
        return [req for req in reqs.values() if held(req, "req_pool_idx") is not None]

    def _begin(self, req: Any, on_host: Sequence[int]) -> None:
        number, prompt_len = req.swarden.id, len(req.origin_input_ids)
        first = self._ends.get(number, prompt_len - prompt_len % self._page_size)
        self._ends[number] = end = first + len(on_host)
        tags = chain(namespace_tag(req.swarden.namespace), [*req.origin_input_ids, *req.output_ids][:end])[first:]
        for position, (place, tag) in enumerate(zip_longest(on_host, tags, fillvalue=NO_TAG), start=first):
            self._wanted[place] = Wanted(number, position, tag)

    def _stored(self, slot: int, tags: Sequence[int]) -> None:
        pairs = [(self._wanted[place], tag, place) for place, tag in enumerate(tags, start=slot)]
        wrong = [
            WrongSlot(want.request_id, want.position, place // self._page_size + 1, bool(tag))
            for want, tag, place in pairs
            if tag != want.tag
        ]
        self._notice(PrefixesCompared(0, HOST_POOL, wrong[:1]))
