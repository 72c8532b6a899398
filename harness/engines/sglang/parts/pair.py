"""Prefill and decode, machine `pd`: the settings of one side, its queues, and where a request is in them.

Real: both event loops in both variants; bootstrap, prealloc, transfer and in-flight queues; reserved tokens,
retraction; the prefix tree of a decode side, with a window from 0.5.19.
Stand-in: the fake backend of the release, made to copy tags when a side first learns that the transfer is complete.
Faults: `link.fails`, `link.drop`, `link.delay`, `link.late` (also after an abort).
Shows: pages freed before they are sent, writes into pages of others, a transfer that skips uncached pages.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any

import swarden.invariants.events as seen
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.limits import MAX_NUMBER
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import ONE_TREE, SglangCapability, Table, Terms
from swarden.harness.engines.sglang.parts.link import LINK_FAULTS, replace_network
from swarden.harness.kit.launch import Line, table
from swarden.harness.kit.ranks import Group
from swarden.harness.kit.reported import names_of
from swarden.harness.kit.settings import IfReleaseHas, Needs, OneOf, within
from swarden.invariants.kinds import Place

BOTH, PREFILL, DECODE = "null", "prefill", "decode"  # the values of --disaggregation-mode
OF_DECODE = {"role": (DECODE,)}
GROUPS = ("attn_cp_cpu_group", "attn_tp_cpu_group", "tp_cpu_group")  # of a scheduler
BACKEND = "mooncake"  # the transfer backend by name; link.py replaces its classes
PREALLOCATED_PER_RUNNING = 2  # rows of a decode side for requests in a transfer; the release's own factor


class Side(SglangCapability, frozen=True):
    """`role` is the disaggregation mode.  A decode side reserves `reserved_decode_tokens` per request."""

    role: Annotated[str, OneOf((BOTH, PREFILL, DECODE))] = BOTH
    reserved_decode_tokens: Annotated[int, within(0, MAX_NUMBER)] = 4

    server_need = "P/D"
    launch_table = table(
        role=(Line.word, "disaggregation-mode", BOTH),
        reserved_decode_tokens=(Line.length, "num-reserved-decode-tokens", 512),
    )

    @property
    def is_decode(self) -> bool:
        return self.role == DECODE

    def faults(self, config: Any) -> Mapping[str, str]:
        return LINK_FAULTS

    def uses(self, config: Any) -> Collection[str]:
        return () if self.is_decode else LINK_FAULTS

    def reported(self, config: Any) -> Sequence[type[object]]:
        """Only a decode side takes over requests."""
        return (seen.TakenOver, seen.Filled, seen.CopiedIn, seen.PeerGaveUp) if self.is_decode else ()

    def inapplicable(self, config: Any, release: SglangRelease) -> Collection[str]:
        """A decode side rejects a prompt by the windowed pages that it allocates for it, which no law knows."""
        return names_of((seen.CacheReset, seen.Rejected) if self.is_decode else (seen.CacheReset,))

    def terms(self, config: Any) -> Terms:
        args = {
            "disaggregation_mode": self.role,
            "disaggregation_transfer_backend": BACKEND,
            "disaggregation_bootstrap_port": 1,
            "disaggregation_decode_retraction_backup": "cpu_tensor",  # as in all releases before there was a choice
            "num_reserved_decode_tokens": self.reserved_decode_tokens,
        }
        return Terms(server_args=args, attributes=dict.fromkeys(GROUPS, Group(self.role, 1)))

    def table(self, release: SglangRelease, config: Any, server_args: Any) -> Table | None:
        more = {"pre_alloc_size": PREALLOCATED_PER_RUNNING * server_args.max_running_requests}
        return Table("DecodeReqToTokenPool", more) if self.is_decode else None

    def equip(self, release: SglangRelease, scheduler: Any) -> None:
        scheduler.disaggregation_mode = release.code("DisaggregationMode")(self.role)
        replace_network(release, scheduler.attn_tp_cpu_group)
        scheduler.init_disaggregation()


class DecodeTree(SglangCapability, frozen=True):
    """With `decode_tree` (--disaggregation-decode-enable-radix-cache) a decode side gets no page that it has cached."""

    decode_tree: Annotated[bool, IfReleaseHas("decode_tree")] = False

    needs = (Needs("decode_tree", ONE_TREE),)
    tree = "RadixCache"
    server_need = "decode radix cache"
    launch_table = table(decode_tree=(Line.has, "disaggregation-decode-enable-radix-cache"))

    def terms(self, config: Any) -> Terms:
        return Terms(server_args={"disaggregation_decode_enable_radix_cache": True})

    def check_release(self, config: Any, release: SglangRelease) -> None:
        if config.has_window and not release.has("decode_tree_with_window"):
            raise InvalidConfig(f"decode_tree is true with sliding_window, want false for sglang {release.text}")


class TransferQueues:
    """The queues of a prefill or a decode side; a scheduler that is both has none."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._mode = scheduler.disaggregation_mode.value

    def place(self, req: Any) -> Place | None:
        """The place of a request that is in one of these queues."""
        if _holds(self._retracted, req):
            return Place.WAITING
        return Place.LINKED if _holds(self._linked, req) or self.is_arriving(req) else None

    def is_arriving(self, req: Any) -> bool:
        """Whether a request of a decode side has pages, but has not run on them."""
        if self._mode != DECODE:
            return False
        return _holds((transfer.req for transfer in self._arriving), req) or _holds(self._scheduler.waiting_queue, req)

    def restored(self, req: Any) -> range:
        """The positions of an arriving request that its side loads from the host; its row has no slots there yet."""
        transfers = [*self._arriving, *self._held]
        match: Any = next((getattr(one, "prefix_match", None) for one in transfers if one.req is req), None)
        if match is None or not match.needs_local_restore:
            return range(0)
        return range(match.l1_prefix_len, match.decode_prefix_len)

    def restore_locks(self) -> Iterator[tuple[int, Any]]:
        """The requests with a second lock, on what is loaded from the host for them, until they have arrived."""
        for one in self._arriving:
            lock = getattr(one, "hicache_restore_lock", None)
            node = getattr(one, "hicache_restored_node", None)  # up to 0.5.19
            if lock is not None or node is not None:
                yield one.req.swarden.id, SimpleNamespace(lock=lock, last_node=node)

    def frontier(self, freed: int, windowed: Sequence[int], page_size: int) -> int:
        """The length below which no windowed page is used: a decode side takes only those that the next token reads."""
        if self._mode != DECODE:
            return freed
        return max(freed, page_size * next((index for index, page in enumerate(windowed) if page), 0))

    @property
    def held(self) -> list[Any]:
        """The requests of a decode side whose transfer was aborted, but whose pages may still be written."""
        return [transfer.req for transfer in self._held]

    def awaits_kv(self, req: Any) -> bool:
        """Whether a request of a decode side has not run on its KV, or its KV was set aside by a retraction."""
        return self.is_arriving(req) or _holds(self._retracted, req)

    @property
    def _arriving(self) -> Iterable[Any]:
        return self._scheduler.disagg_decode_transfer_queue.queue if self._mode == DECODE else ()

    @property
    def _held(self) -> Iterable[Any]:
        queue = self._scheduler.disagg_decode_transfer_queue if self._mode == DECODE else None
        return [entry[0] for entry in getattr(queue, "_deferred_releases", ())]

    @property
    def _retracted(self) -> Iterable[Any]:
        return self._scheduler.disagg_decode_prealloc_queue.retracted_queue if self._mode == DECODE else ()

    @property
    def _linked(self) -> Iterable[Any]:
        """The requests that wait for the other side, and have no pages that are not written yet."""
        scheduler = self._scheduler
        if self._mode == PREFILL:
            return [*scheduler.disagg_prefill_bootstrap_queue.queue, *scheduler.disagg_prefill_inflight_queue]
        queue = scheduler.disagg_decode_prealloc_queue.queue if self._mode == DECODE else ()
        return [transfer.req for transfer in queue]


def _holds(queue: Iterable[Any], req: Any) -> bool:
    return any(other is req for other in queue)
