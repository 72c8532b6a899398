"""The link between a prefill and a decode core: the clock, the router, and the network under the NIXL connector.

Both sides of the connector are the release's own, with their leases, heartbeats and notifications.  Only NIXL is not:
a read or a write of remote memory copies blocks of tags.  Every second one overtakes the passes in flight, the others
are made when the connector learns that they are complete.
"""

import queue
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from swarden.harness.engines.vllm.boot import P2P, VllmRelease
from swarden.harness.engines.vllm.connector import ReleasedSide
from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.parts.part import VllmEngine
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.transfers import BlockLoad
from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.stand_ins import Silent

LINK_FAILS, LINK_DROP, LINK_DELAY = "link.fails", "link.drop", "link.delay"
LEASE_S = 30  # kv_lease_duration: for so long a prefill side keeps blocks that are not read; the releases' default
MOST_STEPS = 8  # in a row of one side in which time passes while the other one has work
POLLS, MORE_POLLS = 2, 4  # of the connector until a read is complete
HEARTBEAT = b"HB:"
WRITER = "_push_writer_loop"  # of a thread; a round follows each metadata of a pass, and each step of the other side
PACKAGE = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
DONE, IN_PROGRESS, FAILED = "DONE", "PROC", "ERR"  # the states of a read


class PairClock(EngineClock):
    """The time of both sides: a second for each step, but a side that has work is never stalled for long."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""
        self._steps = 0  # in a row of the last side

    def tick(self, side: str, *, other_has_work: bool) -> None:
        self._steps = self._steps + 1 if side == self._last else 1
        self._last = side
        self.now_s += self._steps <= MOST_STEPS or not other_has_work


class VllmLink:
    """The clock, the agents and the answers that both sides share.

    `answers` has the kv_transfer_params of each answered prompt, None without KV to send.  `steps_since_read` has, by
    side and request, the number of steps of the side that began since the blocks of the request were read to it.
    """

    def __init__(self) -> None:
        self.steps_since_read: dict[str, dict[int, int]] = defaultdict(dict)
        self.clock = PairClock()
        self.answers: dict[int, Mapping[str, Any] | None] = {}
        self.agents: dict[str, Agent] = {}

    def pass_step(self, side: str, loading: Collection[int]) -> None:
        """Begin a step of a side; requests that are no longer `loading` need no count."""
        counts = self.steps_since_read[side].items()
        self.steps_since_read[side] = {request: count + 1 for request, count in counts if request in loading}


@dataclass
class Transfer:
    """A copy of blocks between the sides, which notifies the side that did not begin it.

    `polls` are left until it is complete.
    """

    source: str
    sent: Sequence[int]
    target: str
    written: Sequence[int]
    notified: str = ""
    notification: bytes = b""
    polls: int = 0
    state: str = IN_PROGRESS
    is_made: bool = False


class Agent:
    """The nixl_agent of one side; `copied` is called with the transfers that have written to this side."""

    def __init__(self, name: str, link: VllmLink, engine: VllmEngine, copied: Callable[[Transfer], None]) -> None:
        self.name, self.memory, self.copied = name, engine.runner.device.memory, copied
        self.begun, self._link, self._faults = engine.runner.copied_in, link, engine.faults
        self._transfers: dict[int, Transfer] = {}
        self._begun = 0
        self.inbox: list[bytes] = []
        self.arrived: list[int] = []  # requests whose blocks the other side has written, by notifications in the inbox
        link.agents[name] = self

    def make_prepped_xfer(self, operation: str, *sides: Any, notif_msg: bytes = b"") -> int:
        _, local_blocks, remote, remote_blocks = sides
        mine, theirs = (self.name, local_blocks), (remote, remote_blocks)
        (source, sent), (target, written) = (theirs, mine) if operation == "READ" else (mine, theirs)
        self._begun += 1
        self._transfers[self._begun] = Transfer(source, sent, target, written, remote, notif_msg)
        return self._begun

    def transfer(self, handle: int) -> str:
        transfer = self._transfers[handle]
        self._link.steps_since_read[transfer.target].pop(_request_of(transfer.notification), None)
        self._link.agents[transfer.target].begun(transfer.written)
        transfer.polls = POLLS + MORE_POLLS * self._faults.fires(LINK_DELAY)
        if self._faults.fires(LINK_FAILS):
            transfer.state = FAILED
        elif handle % 2:
            self._make(transfer)
        return IN_PROGRESS

    def check_xfer_state(self, handle: int) -> str:
        transfer = self._transfers[handle]
        transfer.polls -= 1
        if transfer.polls > 0:
            return IN_PROGRESS
        if transfer.state == IN_PROGRESS:
            self._make(transfer)
            transfer.state = DONE
            if transfer.target == self.name:
                self._link.steps_since_read[self.name][_request_of(transfer.notification)] = 0
        return transfer.state

    def release_xfer_handle(self, handle: int) -> None:
        del self._transfers[handle]

    def get_xfer_telemetry(self, handle: int) -> None: ...

    def check_remote_metadata(self, agent: str) -> bool:
        return True

    def send_notif(self, agent_name: str, notif_msg: bytes) -> None:
        can_be_lost = LINK_DROP in self._faults.known and not notif_msg.startswith(HEARTBEAT)
        is_lost = can_be_lost and self._faults.fires(LINK_DROP)
        if not is_lost:
            self._link.agents[agent_name].inbox.append(notif_msg)

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        new, self.inbox = self.inbox, []
        self._link.steps_since_read[self.name].update(dict.fromkeys(self.arrived, 0))
        self.arrived = []
        return {"": new}

    def _make(self, transfer: Transfer) -> None:
        """Copy the blocks, and notify the other side; a transfer may have been made before it is reported."""
        if not transfer.is_made:
            self.copy(transfer)
            self.send_notif(transfer.notified, transfer.notification)
            if transfer.target != self.name:
                self._link.agents[transfer.target].arrived.append(_request_of(transfer.notification))

    def copy(self, transfer: Transfer) -> None:
        """Copy the blocks, once."""
        source, target = self._link.agents[transfer.source], self._link.agents[transfer.target]
        if not transfer.is_made:
            transfer.is_made = True
            target.copied(transfer)
            for sent, written in zip(transfer.sent, transfer.written, strict=True):
                target.memory.put_unit(written, source.memory.unit(sent))


def _request_of(notification: bytes) -> int:
    """The request whose blocks are transferred; its number is the same on both sides."""
    return number_of(notification.decode().rpartition(":")[0])


class OneRound(Silent):
    """The `stop` of a thread's loop, which ends it after each round."""

    has_begun = False

    def is_set(self) -> bool:
        self.has_begun = not self.has_begun
        return not self.has_begun


class Ranks(dict[Any, str]):
    """The agents of the other side by rank, of which there is one; releases differ in the keys."""

    def __missing__(self, rank: Any) -> str:
        [agent] = self.values()
        return agent


class WorkerSide(ReleasedSide):
    """The worker's side of the connector of one side of a pair."""

    def __init__(self, release: VllmRelease, worker: Any, requests: Mapping[str, Any], *, receives: bool) -> None:
        super().__init__(release, worker)
        self._requests, self.writes_blocks = requests, receives

    def __bool__(self) -> bool:
        return bool(self._connector._recving_metadata) or super().__bool__()

    def received(self, flight: VllmPass, output: Any) -> None:
        """As execute_model: reads begin and end without regard to the passes."""
        for rid, read in output.kv_connector_metadata.reqs_to_recv.items():
            if any(read.local_block_ids):
                end = self._requests[rid].num_computed_tokens
                self.loading[number_of(rid)] = BlockLoad(rid, 0, end, (), read.local_block_ids, is_late=True)
        self._connector.start_load_kv(output.kv_connector_metadata)
        self.write()
        self._outputs[id(flight)] = self.report()

    def write(self) -> None:
        """A round of the thread that pushes, if there is one: it looks for registrations also in an idle core."""
        if hasattr(self._connector, WRITER):
            getattr(self._connector, WRITER)()


@cache
def timed_modules() -> Sequence[ModuleType]:
    """The modules of the connectors that read the clock."""
    loaded = [module for name, module in sys.modules.items() if name.startswith((f"{PACKAGE}.", f"vllm.{P2P}"))]
    return [module for module in loaded if hasattr(vars(module).get("time"), "perf_counter")]


def worker_of(release: VllmRelease, groups: Any, agent: Agent, other: str, *, pushes: bool) -> Any:
    """The release's worker of the connector with one rank, which has met the other side already.

    `groups` is the release's KVCacheConfig.  Its start opens sockets and registers memory, so the attributes that its
    methods read are set here.  A descriptor of memory is the number of a block.
    """
    part = release.code("NixlPushWorker" if pushes else "NixlWorker")
    nothing = dict.fromkeys(("__init__", "shutdown"), lambda worker: None)
    descriptors = {"_compute_desc_ids": lambda worker, block_ids, *args, **kwargs: [*chain.from_iterable(block_ids)]}
    worker = type("Worker", (part,), nothing | descriptors)()
    specs = [group.kv_cache_spec for group in groups.kv_cache_groups]
    of_attention = [spec for spec in specs if not isinstance(spec, release.code("MambaSpec"))]
    count, block_size = len(specs), max(spec.block_size for spec in of_attention)
    remote = SimpleNamespace(
        remote_block_size=block_size, remote_tp_size=1, remote_dcp_size=1, remote_physical_blocks_per_logical=1
    )
    vars(worker).update(
        engine_id=agent.name,
        nixl_wrapper=agent,
        kv_cache_config=groups,
        block_size=block_size,
        transfer_topo=SimpleNamespace(
            get_engine_info=lambda engine_id: remote, tp_ratio=lambda size: 1, block_size_ratio=lambda size: 1
        ),
        tp_mappings={
            other: SimpleNamespace(
                all_source_ranks=(0,), source_ranks_per_group=[(0,)] * count, local_consumers=1, num_groups=count
            )
        },
        xfer_stats=Silent(is_empty=lambda: True),
        _is_hma_required=count > 1,
        _has_mamba=len(of_attention) < count,
        _group_spec_types=tuple(map(type, specs)),
        _lease_extension=LEASE_S * 2 // 3,
        _remote_agents={other: Ranks({(0, 0): other})},
        _engine_clock_offset={other: 0.0},
        _engine_by_address={("", 0): other},
        dst_region_group_ids={other: []},
        dst_uses_region_group_mapping={other: False},
        dst_num_blocks={other: 0, agent.name: 0},
        dst_region_num_blocks={other: 0, agent.name: 0},
        src_xfer_handles_by_block_size={block_size: ""},
        dst_xfer_side_handles={other: {0: other}},
        **_state(),
    )
    if pushes:
        _prepare_pushes(worker, part, groups)
    return worker


def _prepare_pushes(worker: Any, part: Any, groups: Any) -> None:
    """Set the attributes of a worker that pushes, as its own start does; its thread makes a round when it is called."""
    with mock.patch.object(part.__base__, "__init__", return_value=None):
        part.__init__(worker, None, worker.engine_id, groups)
    vars(worker).update(_push_writer_stop=OneRound(), _push_writer_wake=Silent())
    sys.modules[part.__module__].logger.exception = _raise


def _raise(*args: Any) -> None:
    """An error in the thread, which the release logs, and goes on without the notifications that it has taken."""
    raise


def _state() -> dict[str, Any]:
    """The attributes of a worker that do not depend on the configuration, as its start sets them."""
    dicts = (
        *("_recving_metadata", "_reqs_to_send", "_remote_registration_generations", "_engine_last_active"),
        *("_handshake_futures", "_invalid_engine_backoff", "_pending_recv_notifs"),
        "expected_consumer_notifications_by_req",
    )
    sets = (
        *("_reqs_to_process", "_invalid_remote_engines", "_failed_remote_engines", "_recv_failures"),
        "_replicated_pcp_done_sending",
    )
    queues = ("_ready_requests", "_failed_recv_reqs", "_invalid_block_ids")
    flags = (
        *("use_mla", "use_host_buffer", "enable_permute_local_kv", "enable_heterogeneous_attn_post_process"),
        *("_bidirectional_kv_xfer_enabled", "_mixed_mem_types", "_uses_region_group_mapping"),
        *("_hb_handshake_notif_only", "pcp_dcp_sharded", "_is_csa_linear", "_transfer_layer_group_ids"),
    )
    return {
        **{name: {} for name in dicts},
        **{name: set() for name in sets},
        **{name: queue.Queue() for name in queues},
        **dict.fromkeys(flags, False),
        **dict.fromkeys(("tp_rank", "dcp_rank", "pcp_rank", "num_regions", "_engine_ttl"), 0),
        **dict.fromkeys(("world_size", "dcp_size", "_physical_blocks_per_logical_kv_block"), 1),
        "region_group_ids": [],
        "region_num_blocks": [],
        "_recving_transfers": defaultdict(list),
        "consumer_notification_counts_by_req": defaultdict(int),
        "_handshake_lock": threading.RLock(),
    }
