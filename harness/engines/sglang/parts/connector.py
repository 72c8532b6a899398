"""The release's connector between the sides of a pair: both in this process, and one at a time.

Real: Mooncake's from 0.5.12, NIXL's from 0.5.17: the manager with its threads (in lock-step), sender and receiver:
status by room, failure records, heartbeat, aborts and acknowledgements.
Stand-in: sockets are queues; the bootstrap server is a table; Mooncake's engine (`mooncake.py`) and NIXL's agent
(`nixl.py`) copy tags when a transfer ends.  Faults of a pair, of which a failed transfer copies half of its blocks;
`link.health`.
Shows: a failure that one side alone knows.
"""

import ctypes
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, ClassVar

import swarden.invariants.events as seen
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import SECONDS_PER_STEP, SglangCapability, Terms
from swarden.harness.engines.sglang.parts import link
from swarden.harness.engines.sglang.parts.link import SglangLink, numbers
from swarden.harness.engines.sglang.parts.pair import DECODE, PREFILL
from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.lockstep import LockstepThread, replace_threads
from swarden.harness.kit.settings import IfReleaseHas, Needs, OneOf
from swarden.harness.kit.stand_ins import Missing, Silent, replace_present

MOONCAKE, NIXL = BACKENDS = ("mooncake", "nixl")
LINK_HEALTH, SAME_ROOM = "link.health", "room.again"
FAULTS = {
    LINK_HEALTH: "a health check of the prefill side fails; after two in a row the decode side gives it up",
    SAME_ROOM: "a client sends a request with the room of the one before it",
}
LATE_STEPS = 8  # of each side, by which a transfer is delayed: less than the time-out of what the decode side holds
TOLD_STEPS = 8  # of each side, within which the decode side must learn of a failure
TIMEOUT_S = link.TIMEOUT_POLLS * SECONDS_PER_STEP
ADDRESS = "127.0.0.1"
OF_SERVER = ("attn_tp_size", "attn_cp_size", "pp_size", "page_size", "kv_cache_dtype")


class Connector(SglangCapability, frozen=True):
    """With `connector` the release's code for this transfer backend links the sides."""

    connector: Annotated[str | None, OneOf((None, *BACKENDS)), IfReleaseHas("connector")] = None

    needs = (Needs("connector", {"role": (PREFILL, DECODE), "ranks": (None,)}),)

    def terms(self, config: Any) -> Terms:
        return Terms(server_args={"disaggregation_transfer_backend": self.connector})

    def faults(self, config: Any) -> Mapping[str, str]:
        return {} if config.side.is_decode else FAULTS

    def uses(self, config: Any) -> Collection[str]:
        return self.faults(config).keys() - {SAME_ROOM}  # of which every release dies


@dataclass(eq=False)
class Transfer:
    """The copy of some blocks, each with its address, that on the decode side, and its length.  It ends at a step."""

    blocks: Sequence[tuple[int, int, int]]
    note: bytes = b""  # to the decode side, at the end
    room: int = 0
    due: int = 0
    has_failed: bool = False
    has_ended: bool = False


class ConnectorLink(SglangLink):
    """Two engines that the release's connector links; `managers` are those of the prefill and of the decode side."""

    backend: ClassVar[str]
    release_timeout_s = TIMEOUT_S

    def __init__(self, page_size: int) -> None:
        super().__init__(page_size)
        self.managers: list[Any] = []
        self.clock = TransferClock()
        self.boxes: list[deque[Sequence[bytes]]] = []  # the messages that have arrived, by port
        self.chunks: dict[LockstepThread | None, Any] = {}  # what each thread sends
        self._untold = defaultdict[int, Counter[bool]](Counter)  # by failed room, the steps of each side since then
        self._transfers: list[Transfer] = []  # that are under way
        self._registered: Mapping[str, Any] = {}
        self._polls: Any = None

    def has_all(self, number: int) -> bool:
        return bool(self.managers[1].request_status.get(number) == self._polls.Success)

    def classes(self, release: SglangRelease) -> Mapping[Any, Any]:
        names = ("common.conn", f"{self.backend}.conn", "decode")
        self.clock.serve([import_module(f"sglang.srt.disaggregation.{name}") for name in names])
        self._polls = release.code("KVPoll")
        return _classes(release, self.backend)

    def has_work(self, *, is_decode: bool) -> bool:
        return any(each.held_by is not None and each.held_by() for each in self.managers[is_decode].swarden_threads)

    def begin_step(self, *, is_decode: bool) -> None:
        """Let the threads of one side go as far as they come."""
        self.clock.now_s += SECONDS_PER_STEP / 2
        self._steps += 1
        self.end_transfers()
        for thread in self.managers[is_decode].swarden_threads:
            while thread.held_by is not None and thread.held_by():
                thread.step()
        status = self.managers[1].request_status  # of rooms that the decode side still has
        for number in self.managers[0].swarden_failed & status.keys():
            room, passed, ends = self.room(number), self._untold[number], (self._polls.Failed, self._polls.Success)
            if room.wanted is not None and not room.is_silent and status[number] not in ends:
                passed[is_decode] += 1
                if min(passed[False], passed[True]) > TOLD_STEPS:
                    self.decode.notice(seen.PeerGaveUp(room.request_id))

    def listen(self) -> tuple[int, "Socket"]:
        """A new port, and its socket."""
        self.boxes.append(deque())
        return len(self.boxes), Socket(box=self.boxes[-1])

    def post(self, box: "deque[Sequence[bytes]]", message: Sequence[bytes]) -> None:
        """Send a message; one to the decode side may be lost."""
        if box is self.boxes[1] and self.prefill.faults.fires(link.LINK_DROP):
            self.room(next(int(part) for part in message if part.isdigit())).is_silent = True
        else:
            box.append([bytes(part) for part in message])

    def answer(self, url: str, json: Any = None, **_: Any) -> Any:
        """The answer of the bootstrap server to a request by HTTP: that it lives, or who has registered there."""
        is_down = "/health" in url and self.prefill.faults.fires(LINK_HEALTH)
        self._registered = entry = json or self._registered
        if "prefill_dp_rank=-1" in url:
            entry = {**{name: entry[name] for name in OF_SERVER}, "dp_size": 1, "follow_bootstrap_room": True}
        return Missing(status_code=503 if is_down else 200, json=lambda: dict(entry))

    def transfer(self, transfer: Transfer) -> None:
        """Begin what a thread of the prefill side sends."""
        faults = self.prefill.faults
        delay = LATE_STEPS if faults.fires(link.LINK_LATE) else link.DELAY_POLLS * faults.fires(link.LINK_DELAY)
        transfer.due = self._steps + 2 * delay
        self._last_due = max(self._last_due, transfer.due)
        transfer.has_failed = faults.fires(link.LINK_FAILS)
        transfer.room = self.chunks[LockstepThread.running].room
        self._transfers.append(transfer)
        self.end_transfers()

    def end_transfers(self) -> None:
        """End the transfers that are due."""
        for transfer in [transfer for transfer in self._transfers if transfer.due <= self._steps]:
            self._transfers.remove(transfer)
            for block in transfer.blocks[: len(transfer.blocks) // 2] if transfer.has_failed else transfer.blocks:
                self._copy_block(transfer.room, *block)
            transfer.has_ended = True
            if transfer.note and not transfer.has_failed:
                self.notify(transfer)

    def notify(self, transfer: Transfer) -> None:
        """Tell the decode side that a transfer has ended."""

    def _copy_block(self, number: int, source: int, target: int, length: int) -> None:
        """Copy memory, and the tags of the pages that are there in the first layer of a pool."""
        mine, its = [manager.kv_args for manager in self.managers]
        ctypes.memmove(target, source, length)
        room = self.rooms[number]
        full, *_ = wanted = room.wanted or ([], [])
        for pool, ((begin, size, unit), (to_begin, *_)) in enumerate(zip(_regions(mine), _regions(its), strict=True)):
            if begin <= source < begin + size:
                first, to_first = (source - begin) // unit, (target - to_begin) // unit
                pages = range(to_first, to_first + length // unit)
                for page, to_page in enumerate(pages, first):
                    self.decode.tags[pool].put_unit(to_page, self.prefill.tags[pool].unit(page))
                end = room.prefix_len // self._page_size + len(full)
                place_of = dict(zip(reversed(wanted[pool]), range(end - 1, -1, -1), strict=False))
                places = tuple([place_of.get(page, -1) for page in pages])
                self.decode.notice(seen.Filled(room.request_id, link.POOLS[pool], places, tuple(pages)))


class TransferClock(EngineClock):
    """The clock of a pair, for which threads can wait."""

    def sleep(self, duration_s: float) -> None:
        due = self.now_s + max(duration_s, 1e-3)
        wait_until(lambda: self.now_s >= due)


class Socket(Silent):
    """A socket whose messages go to a box, or arrive there."""

    def connect(self, endpoint: str) -> None:
        self.box = live().boxes[int(endpoint.rpartition(":")[2]) - 1]

    def send_multipart(self, message: Sequence[bytes]) -> None:
        live().post(self.box, message)

    def recv_multipart(self) -> Sequence[bytes]:
        wait_until(lambda: bool(self.box))
        message: Sequence[bytes] = self.box.popleft()
        return message


def live() -> Any:
    """The link of the pair that was built last."""
    assert isinstance(SglangLink.live, ConnectorLink), "the connector of an earlier pair is not used"
    return SglangLink.live


def wait_until(is_so: Callable[[], bool]) -> None:
    assert LockstepThread.running is not None, "only a thread of the connector waits"
    LockstepThread.running.wait_until(is_so)


def _regions(args: Any) -> list[list[int]]:
    """Per pool, the address of the keys of its first layer, their length and that of a page in bytes."""
    of_kv = [args.kv_data_ptrs, args.kv_data_lens, args.kv_item_lens]
    parts = [of_kv, *zip(args.state_data_ptrs, args.state_data_lens, args.state_item_lens, strict=True)]
    return [[int(values[0]) for values in part] for part in parts]


class Queue(deque[Any]):
    """The release's FastQueue."""

    put = deque.append

    def get(self) -> Any:
        wait_until(lambda: bool(self))
        chunk = live().chunks[LockstepThread.running] = self.popleft()
        return chunk


def _replace_network(modules: Sequence[ModuleType], context: Any) -> None:
    """Let modules of the connector use our threads and sockets."""
    event = partial(Silent, wait=lambda timeout: live().clock.sleep(timeout))  # which nobody sets
    replace_threads(modules, Event=event)
    http = dict.fromkeys(("get", "put", "post"), lambda *args, **named: live().answer(*args, **named))
    replaced = {
        "zmq": Silent(Context=lambda: context, ZMQError=OSError, Again=OSError),
        "requests": Silent(**http, Session=lambda: Silent(**http), adapters=Silent()),
        "FastQueue": Queue,
        "get_zmq_socket_on_host": lambda *_, **__: live().listen(),
        "get_local_ip_auto": lambda: ADDRESS,
        "get_mooncake_transfer_engine": lambda: live().engine(),
        "run_with_deadline": lambda *_, **__: None,  # which prepares a GPU for NIXL
    }
    replace_present(modules, replaced)


@cache
def _classes(release: SglangRelease, backend: str) -> Mapping[Any, Any]:
    """The classes of the connector, by KVClassType, with its network replaced."""
    common, connector = (import_module(f"sglang.srt.disaggregation.{name}.conn") for name in ("common", backend))
    names = [f"{backend.title()}KV{name}" for name in ("Manager", "Sender", "Receiver")]
    manager, sender, receiver = map(vars(connector).__getitem__, names)
    common.CommonKVReceiver._ctx = context = Silent(socket=lambda _: Socket())
    sender.supports_host_tensor_indices = False  # in pinned memory
    _replace_network([common, connector], context)
    polls, kinds = release.code("KVPoll"), release.code("KVClassType")

    class Manager(manager):  # type: ignore[misc, valid-type]  # the release has no types here
        """`swarden_failed` are the rooms that have failed."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            before, self.swarden_failed = len(LockstepThread.waiting), set[int]()
            args[0].gpu_id = 0
            super().__init__(*args, **kwargs)
            self.swarden_threads = LockstepThread.waiting[before:]
            self.bootstrap_timeout = self.waiting_timeout = TIMEOUT_S
            self.heartbeat_interval = 2.0  # the shortest that a release allows
            common.CommonKVReceiver._socket_cache.clear()
            live().managers.append(self)

        def update_status(self, bootstrap_room: int, status: Any) -> None:
            super().update_status(bootstrap_room, status)
            if status == polls.Failed:
                self.swarden_failed.add(bootstrap_room)

    class Receiver(receiver):  # type: ignore[misc, valid-type]  # the release has no types here
        def send_metadata(
            self, kv_indices: Any, aux_index: Any, state_indices: Any, decode_prefix_len: int = 0, **kwargs: Any
        ) -> None:
            room = live().room(self.bootstrap_room)
            room.prefix_len, room.wanted = decode_prefix_len or 0, (numbers(kv_indices), numbers(state_indices))
            super().send_metadata(kv_indices, aux_index, state_indices, decode_prefix_len, **kwargs)

    of_sides = {kinds.MANAGER: Manager, kinds.SENDER: sender, kinds.RECEIVER: Receiver}
    return {kinds.KVARGS: release.code("KVArgs"), **of_sides}
