"""The transfer of KV between a prefill and a decode scheduler: the release's fake backend, made to move tags.

A release asks its transfer backend only for the state of each room.  Here both sides of a room share one object, and
the tags are copied as late as possible: at the poll that first reports the success.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from math import inf
from typing import Any, ClassVar, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.kit.ranks import Group, Ranks
from swarden.harness.kit.stand_ins import Missing, replace_present
from swarden.harness.kit.tags import TagMemory

LINK_FAILS, LINK_DROP, LINK_DELAY, LINK_LATE = "link.fails", "link.drop", "link.delay", "link.late"
LINK_FAULTS = {
    LINK_FAILS: "a transfer fails, and both sides learn it",
    LINK_DROP: "the decode side never learns that a transfer is complete, so that it times out",
    LINK_DELAY: "a transfer completes some polls later",
    LINK_LATE: "the pages of a chunk arrive some steps later, also if the transfer is aborted before",
}
LINK_METADATA = "link.metadata"  # only ranks have this fault
TIMEOUT_POLLS = 24  # a side gives up a room after so many polls in which the other side did nothing
DELAY_POLLS = 3
METADATA_STEPS = 3  # steps of the decode side by which late metadata arrives after the pages
LATE_STEPS = 16  # steps of the decode side by which a late chunk is delayed
POOLS = ("full", "swa")
OF_ATTENTION = ("tp_size", "tp_rank", "cp_size", "cp_rank", "dp_size", "dp_rank")
MODULES = ("prefill", "decode", "utils", "common.conn", "mooncake.conn", "nixl.conn")  # those that use the network
RANK = 0  # of the prefill side, of which each rank of the decode side has one
HELD_UNTIL_DRAINED = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE"
OF_ACKNOWLEDGEMENTS = (  # methods of the release's manager: which aborted transfers the prefill side writes no more
    "register_deferred_abort_room",
    "note_abort_ack",
    "is_abort_release_safe",
    "clear_deferred_abort_state",
)


class TransferMemory(NamedTuple):
    """The memory of one side, as far as a transfer reads or writes it; `notice` takes its events."""

    tags: Sequence[TagMemory]
    buffers: Any
    faults: FaultPlan
    notice: Callable[[NamedTuple], None]


class SentPages(NamedTuple):
    """Pages of a pool (0: full, 1: swa) to send, and those of the decode side, from page index `first` on."""

    pool: int
    first: int
    pages: Sequence[int]
    to_pages: Sequence[int]


class Chunk(NamedTuple):
    """A part of a prompt that was sent.  It is not written before step `due` of the decode side."""

    parts: Sequence[SentPages]
    due: int


@dataclass(eq=False)
class Room:
    """One transfer.  `wanted` are the decode side's pages: those of the full pool, then those of the windowed pool.

    The decode side has the first `prefix_len` tokens in its prefix tree: these whole pages are not sent.  `request_id`
    is that of the decode side.  `acknowledge` tells a decode side that has aborted that nothing more will be written.
    """

    request_id: int = 0
    wanted: tuple[Sequence[int], Sequence[int]] | None = None
    prefix_len: int = 0
    decode_buffer: int = 0
    prefill_buffer: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    delay: int = 0
    is_sent: bool = False
    has_arrived: bool = False
    is_silent: bool = False
    has_failed: bool = False
    acknowledge: Callable[[], None] | None = None

    @property
    def due(self) -> int:
        """The step of the decode side in which the last chunk can be written; 0: now."""
        return max([chunk.due for chunk in self.chunks], default=0)


class SglangLink:
    """The rooms of two engines, or of one rank of each; `prefill` and `decode` are set once both are built.

    `links` are those of all ranks of the two engines, this one included.  `current` is the configuration of the side
    whose server arguments are those of the process.  `live` is the link of the last pair that was built.
    """

    current: ClassVar[Any] = None
    live: ClassVar["SglangLink | None"] = None
    prefill: TransferMemory
    decode: TransferMemory
    release_timeout_s = inf  # after which the decode side releases what it holds; no acknowledgement is lost

    def __init__(self, page_size: int, links: "list[SglangLink] | None" = None) -> None:
        self._page_size, self._links = page_size, [] if links is None else links
        self._links.append(self)
        self.rooms: dict[int, Room] = {}
        self._steps = 0  # the steps of the decode side so far
        self._late: list[Room] = []  # aborted transfers with chunks in flight
        self._last_due = 0
        SglangLink.live = self
        self._metadata_due: dict[Room, int] = {}  # the step in which late metadata arrives; 0: its pages have not

    def room(self, number: int) -> Room:
        return self.rooms.setdefault(number, Room())

    def send(self, room: Room, pages: Sequence[int], windowed: Sequence[int] | None) -> None:
        """Queue pages of the prefill side; `windowed` are those of the last chunk ([] without a window), else None."""
        assert room.wanted is not None, "a sender sends only after the decode side has named its pages"
        full, swa = room.wanted
        cached, faults = room.prefix_len // self._page_size, self.prefill.faults
        sent = sum(len(chunk.parts[0].pages) for chunk in room.chunks)
        parts = [SentPages(0, cached + sent, pages, full[sent : sent + len(pages)])]
        if windowed:  # neither an earlier chunk (None) nor a model without a window ([])
            parts.append(SentPages(1, cached + len(full) - len(swa), windowed[: len(swa)], swa[: len(windowed)]))
        due = self._steps + LATE_STEPS if faults.fires(LINK_LATE) else 0
        self._last_due = max(self._last_due, due)
        room.chunks.append(Chunk(parts, due))
        if windowed is not None:
            room.is_sent = True
            room.has_failed |= faults.fires(LINK_FAILS)
            room.is_silent = faults.fires(LINK_DROP)
            room.delay = DELAY_POLLS * faults.fires(LINK_DELAY)
            if LINK_METADATA in faults.known and faults.fires(LINK_METADATA):
                self._metadata_due[room] = 0

    @property
    def has_late_pages(self) -> bool:
        return self._steps < self._last_due

    def is_complete(self, room: Room) -> bool:
        """Whether all pages have arrived; the first call that finds so copies their tags."""
        if not room.is_sent or room.has_failed:
            return False
        if room.delay:
            room.delay -= 1
            return False
        if self._steps < room.due:
            return False
        if not room.has_arrived:
            room.has_arrived = True
            self._copy(room, room.chunks)
        return True

    def has_all(self, number: int) -> bool:
        """Whether the next poll of the decode side reports that all pages of a room have arrived, in each rank."""
        return all(link._has_all(link.rooms[number]) for link in self._links)

    def _has_all(self, room: Room) -> bool:
        is_late = room.delay or room in self._metadata_due or self._steps < room.due
        return room.is_sent and not (room.has_failed or room.is_silent or is_late)

    def abort(self, room: Room) -> None:
        """Give up a transfer; the chunks that are in flight are written all the same."""
        if self._steps < room.due and not (room.has_arrived or room.has_failed):
            self._late.append(room)
        room.has_failed |= not room.has_arrived
        self.forget_metadata(room)

    def forget_metadata(self, room: Room) -> None:
        """The decode side has released the buffer for it."""
        self._metadata_due.pop(room, None)

    def acknowledge(self, room: Room, drained: Callable[[], None]) -> None:
        """Call `drained` once nothing more will be written for an aborted transfer."""
        self.abort(room)  # it may have ended in another rank alone
        if room in self._late:
            room.acknowledge = drained
        else:
            drained()

    def classes(self, release: SglangRelease) -> Mapping[Any, Any]:
        """The classes that the queues of a release use, by KVClassType."""
        return backend(release)

    def has_work(self, *, is_decode: bool) -> bool:
        """Whether a thread of a side can go on, also while its scheduler is idle."""
        return False

    def begin_step(self, *, is_decode: bool) -> None:
        """Begin a step of one side: aborted chunks that are due are written, and acknowledged."""
        if not is_decode:
            return
        self._steps += 1
        for room in [room for room, due in self._metadata_due.items() if due == self._steps]:
            del self._metadata_due[room]
            self._copy_metadata(room)
        for room in list(self._late):
            self._copy(room, [chunk for chunk in room.chunks if chunk.due == self._steps])
            if room.due <= self._steps:
                self._late.remove(room)
                if room.acknowledge is not None:
                    room.acknowledge()

    def _copy(self, room: Room, chunks: Sequence[Chunk]) -> None:
        for pool, first, pages, to_pages in chain.from_iterable(chunk.parts for chunk in chunks):
            copies = list(zip(pages, to_pages, strict=False))
            for page, to_page in copies:
                self.decode.tags[pool].put_unit(to_page, self.prefill.tags[pool].unit(page))
            places = tuple(range(first, first + len(copies)))
            self.decode.notice(seen.Filled(room.request_id, POOLS[pool], places, tuple(to_pages[: len(copies)])))
        if not room.is_sent or room.chunks[-1] not in chunks:  # its first output comes with the last chunk
            return
        if room in self._metadata_due:
            self._metadata_due[room] = self._steps + METADATA_STEPS
        else:
            self._copy_metadata(room)

    def _copy_metadata(self, room: Room) -> None:
        """Copy the first output of a transfer, and what else comes with it."""
        for name, tensor in vars(self.prefill.buffers).items():
            if hasattr(tensor, "copy_"):
                getattr(self.decode.buffers, name)[room.decode_buffer].copy_(tensor[room.prefill_buffer])


class End:
    """A side's end of a room, as sender or receiver of the release; its `state` is asked until that is final."""

    def __init__(self, mgr: Any, bootstrap_addr: str, bootstrap_room: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(mgr, bootstrap_addr, bootstrap_room, *args, **kwargs)  # type: ignore[call-arg]  # the release's
        self.kv_mgr, self.conclude_state, self._num_polls = mgr, None, 0
        self._number, self._room = bootstrap_room, mgr.link.room(bootstrap_room)

    def poll(self) -> Any:
        if self.conclude_state is None:
            state, polls = self.state(self._room), self.kv_mgr.polls
            if state not in (polls.Failed, polls.Success):
                return state
            self.conclude_state = state
        return self.conclude_state

    def state(self, room: Room) -> Any: ...

    def gives_up(self) -> bool:
        """Counts the polls in which it waits for the other side."""
        self._num_polls += 1
        return self._num_polls > TIMEOUT_POLLS

    def clear(self) -> None: ...


@cache
def backend(release: SglangRelease) -> Mapping[Any, Any]:
    """The classes of this link, by KVClassType."""
    kinds = release.code("KVClassType")
    return {
        kinds.KVARGS: release.code("KVArgs"),
        kinds.MANAGER: _manager(release),
        kinds.SENDER: _sender(release),
        kinds.RECEIVER: _receiver(release),
    }


def _manager(release: SglangRelease) -> type:
    common, switches = release.code("CommonKVManager"), release.code("envs")
    of_release = {name: vars(common)[name] for name in OF_ACKNOWLEDGEMENTS if name in vars(common)}

    class Manager(release.code("FakeKVManager")):  # type: ignore[misc]  # the release has no types here
        """One engine's end; the prefill server is known, and has as many ranks."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.link: SglangLink | None = None
            self.polls = release.code("KVPoll")
            self.kv_args = args[0]
            self.is_dummy_cp_rank = False
            has_switch = hasattr(switches, HELD_UNTIL_DRAINED)
            self.enable_deferred_decode_kv_release = has_switch and getattr(switches, HELD_UNTIL_DRAINED).get()
            self._deferred_abort_ack_tracker: dict[int, Any] = {}
            self._deferred_abort_generation = 0
            self.prefill_info_table = Missing(get=lambda address: Missing(dp_size=1))

    return type("Manager", (Manager,), of_release)


def _sender(release: SglangRelease) -> type:
    poll = release.code("KVPoll")

    class Sender(End, release.code("FakeKVSender")):  # type: ignore[misc]  # the release has no types here
        def state(self, room: Room) -> Any:
            if room.has_failed or (room.wanted is None and self.gives_up()):
                return poll.Failed
            if room.wanted is None:
                return poll.Bootstrapping
            if self.kv_mgr.link.is_complete(room):
                return poll.Success
            return poll.Transferring if room.is_sent else poll.WaitingForInput

        def init(self, num_kv_indices: int, aux_index: int | None = None) -> None:
            self._room.prefill_buffer = aux_index or 0

        def send(self, kv_indices: Any, state_indices: Any = None, *args: Any, **kwargs: Any) -> None:
            windowed = None if state_indices is None else numbers(state_indices)
            self.kv_mgr.link.send(self._room, numbers(kv_indices), windowed)

        def pop_decode_prefix_len(self) -> int:
            return int(self._room.prefix_len)

        def should_send_kv_chunk(self, num_pages: int, last_chunk: bool) -> bool:
            return num_pages > 0 or last_chunk

        def abort(self) -> None:
            self.kv_mgr.link.abort(self._room)
            self._room.has_failed, self.conclude_state = True, poll.Failed

    return Sender


def _receiver(release: SglangRelease) -> type:
    poll = release.code("KVPoll")

    class Receiver(End, release.code("FakeKVReceiver")):  # type: ignore[misc]  # the release has no types here
        abort_notified, bootstrap_infos = False, (RANK,)

        def state(self, room: Room) -> Any:
            if not self.bootstrap_done:
                return poll.Bootstrapping
            if room.wanted is None:
                return poll.WaitingForInput
            if room.has_failed:
                return poll.Failed
            if (room.is_silent or not room.is_sent) and self.gives_up():
                self.abort()
                return poll.Failed
            is_complete = not room.is_silent and self.kv_mgr.link.is_complete(room)
            return poll.Success if is_complete else poll.Transferring

        def send_metadata(
            self, kv_indices: Any, aux_index: Any, state_indices: Any, decode_prefix_len: int = 0, **kwargs: Any
        ) -> None:
            self._room.prefix_len = decode_prefix_len or 0
            self._room.wanted = numbers(kv_indices), numbers(state_indices)
            self._room.decode_buffer = aux_index or 0

        def abort(self) -> None:
            """A complete transfer is not failed: the prefill side may have seen its success."""
            self.kv_mgr.link.abort(self._room)
            self.conclude_state = poll.Failed
            self.ensure_abort_notified()

        def ensure_abort_notified(self, *, force_arm: bool = False) -> None:
            """Let the prefill side acknowledge that it writes no more to the pages of an aborted transfer."""
            manager, number = self.kv_mgr, self._number
            is_first, self.abort_notified = not self.abort_notified, True
            has_pages = force_arm or self._room.wanted is not None
            if is_first and has_pages and manager.enable_deferred_decode_kv_release:
                generation = manager.register_deferred_abort_room(number)
                attempt = () if generation is None else (generation,)
                manager.link.acknowledge(self._room, lambda: manager.note_abort_ack(number, RANK, *attempt))

        def clear(self) -> None:
            self.kv_mgr.link.forget_metadata(self._room)

    return Receiver


def numbers(indices: Any) -> list[int]:
    """The indices of one array, or of the arrays of all windowed components."""
    numbers: list[int] = []
    for part in indices if indices is not None else ():
        numbers += [int(part)] if getattr(part, "ndim", 0) == 0 and not isinstance(part, list) else map(int, part)
    return numbers


def replace_network(release: SglangRelease, group: Group) -> None:
    """Let both queues of a release use this link, in an engine whose ranks are the group."""
    parallel = Missing(
        **dict.fromkeys(("dp_rank", "pp_rank", "attn_cp_rank", "attn_dp_rank", "attn_dcp_rank"), 0),
        **dict.fromkeys(("tp_rank", "attn_tp_rank"), Ranks.running()),
        **dict.fromkeys(("tp_size", "attn_tp_size"), group.size),
        **dict.fromkeys(("dp_size", "pp_size", "attn_cp_size", "attn_dp_size", "attn_dcp_size"), 1),
        **dict.fromkeys(("num_dp_ranks", "nnodes"), 1),
        pp_group=Missing(is_last_rank=True, is_first_rank=True),
        attn_tp_group=Missing(cpu_group=group),
    )
    assert SglangLink.live is not None, "a pair has its link before its engines"
    classes = SglangLink.live.classes(release)
    replacements: Mapping[str, Callable[..., Any]] = {
        "get_kv_class": lambda transfer_backend, class_type: classes[class_type],
        **{f"get_attention_{name}": partial(getattr, parallel, f"attn_{name}") for name in OF_ATTENTION},
        "get_parallel": lambda: parallel,
        "get_pp_group": lambda: parallel.pp_group,
        "linear_attn_tp_size": lambda: group.size,
    }
    loaded = [sys.modules.get(f"sglang.srt.disaggregation.{name}") for name in MODULES]
    replace_present(filter(None, loaded), replacements)
