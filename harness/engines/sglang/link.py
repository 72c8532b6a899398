"""The transfer of KV between a prefill and a decode scheduler: the release's fake backend, made to move tags.

A release asks its transfer backend only for the state of each room.  Here both sides of a room share one object, and
the tags are copied as late as possible: at the poll that first reports the success.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import LINK_DELAY, LINK_DROP, LINK_FAILS
from swarden.harness.kit.stand_ins import Missing
from swarden.harness.kit.tags import TagMemory

TIMEOUT_POLLS = 24  # a side gives up a room after so many polls in which the other side did nothing
DELAY_POLLS = 3


class TransferMemory(NamedTuple):
    """The memory of one side, as far as a transfer reads or writes it; `copied_in` is told of the slots of a pool."""

    tags: Sequence[TagMemory]
    buffers: Any
    faults: FaultPlan
    copied_in: Callable[[int, Sequence[int]], None]


class SentPages(NamedTuple):
    """Pages of a pool (0: full, 1: swa) to send, and their places on the decode side."""

    pool: int
    pages: Sequence[int]
    to_pages: Sequence[int]


@dataclass
class Room:
    """One transfer.  `wanted` are the decode side's pages: those of the full pool, then those of the windowed pool."""

    wanted: tuple[Sequence[int], Sequence[int]] | None = None
    decode_buffer: int = 0
    prefill_buffer: int = 0
    moves: list[SentPages] = field(default_factory=list)
    num_sent: int = 0
    delay: int = 0
    is_sent: bool = False
    has_arrived: bool = False
    is_silent: bool = False
    has_failed: bool = False


class SglangLink:
    """The rooms of two engines; `prefill` and `decode` are set once both are built."""

    def __init__(self) -> None:
        self.rooms: dict[int, Room] = {}
        self.prefill: TransferMemory | None = None
        self.decode: TransferMemory | None = None
        self.current = ""  # the role of the side whose server arguments are the current ones

    def room(self, number: int) -> Room:
        return self.rooms.setdefault(number, Room())

    def send(self, room: Room, pages: Sequence[int], windowed: Sequence[int] | None) -> None:
        """Queue pages of the prefill side; `windowed` pages come with the last chunk."""
        assert room.wanted is not None, "a sender sends only after the decode side has named its pages"
        full, swa = room.wanted
        first = room.num_sent
        room.num_sent += len(pages)
        room.moves.append(SentPages(0, pages, full[first : room.num_sent]))
        if windowed is not None:
            count = min(len(windowed), len(swa))
            room.moves.append(SentPages(1, windowed[:count], swa[:count]))
            room.is_sent = True
            faults = self._ends[0].faults
            room.has_failed |= faults.fires(LINK_FAILS)
            room.is_silent = faults.fires(LINK_DROP)
            room.delay = DELAY_POLLS * faults.fires(LINK_DELAY)

    def is_complete(self, room: Room) -> bool:
        """Whether everything has arrived; copies it when that is asked first."""
        if not room.is_sent or room.has_failed:
            return False
        if room.delay:
            room.delay -= 1
            return False
        if not room.has_arrived:
            room.has_arrived = True
            self._copy(room)
        return True

    def _copy(self, room: Room) -> None:
        prefill, decode = self._ends
        for pool, pages, places in room.moves:
            decode.copied_in(pool, [place * decode.tags[pool].unit_size for place in places])
            for page, place in zip(pages, places, strict=False):
                decode.tags[pool].put_unit(place, prefill.tags[pool].unit(page))
        for name, tensor in vars(prefill.buffers).items():
            if hasattr(tensor, "copy_"):
                getattr(decode.buffers, name)[room.decode_buffer].copy_(tensor[room.prefill_buffer])

    @property
    def _ends(self) -> tuple[TransferMemory, TransferMemory]:
        assert self.prefill is not None, "the prefill side is built before the first transfer"
        assert self.decode is not None, "the decode side is built before the first transfer"
        return self.prefill, self.decode


class Patience:
    """Counts the polls of a side that waits for the other one."""

    def __init__(self) -> None:
        self._polls = 0

    def is_over(self) -> bool:
        self._polls += 1
        return self._polls > TIMEOUT_POLLS


@cache
def backend(release: SglangRelease) -> Callable[..., Any]:
    """The release's get_kv_class, with the classes of this link."""
    kinds = release.part("KVClassType")
    classes = {
        kinds.KVARGS: release.part("KVArgs"),
        kinds.MANAGER: _manager(release),
        kinds.SENDER: _sender(release),
        kinds.RECEIVER: _receiver(release),
    }
    return lambda transfer_backend, class_type: classes[class_type]


def _manager(release: SglangRelease) -> type:
    class Manager(release.part("FakeKVManager")):  # type: ignore[misc]  # the release has no types here
        """One engine's end; the prefill server is known and has one rank."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.link: SglangLink | None = None
            self.kv_args = args[0]
            self.is_dummy_cp_rank = False
            self.enable_deferred_decode_kv_release = False
            self.prefill_info_table = Missing(get=lambda address: Missing(dp_size=1))

    return Manager


def _sender(release: SglangRelease) -> type:
    poll = release.part("KVPoll")

    class Sender(release.part("FakeKVSender")):  # type: ignore[misc]  # the release has no types here
        def __init__(self, mgr: Any, bootstrap_addr: str, bootstrap_room: int, *args: Any, **kwargs: Any) -> None:
            super().__init__(mgr, bootstrap_addr, bootstrap_room, *args, **kwargs)
            self.kv_mgr, self.conclude_state, self._patience = mgr, None, Patience()
            self._room = mgr.link.room(bootstrap_room)

        def poll(self) -> Any:
            room = self._room
            if self.conclude_state is None:
                if room.has_failed or (room.wanted is None and self._patience.is_over()):
                    self.conclude_state = poll.Failed
                elif room.wanted is None:
                    return poll.Bootstrapping
                elif self.kv_mgr.link.is_complete(room):
                    self.conclude_state = poll.Success
                else:
                    return poll.Transferring if room.is_sent else poll.WaitingForInput
            return self.conclude_state

        def init(self, num_kv_indices: int, aux_index: int | None = None) -> None:
            self._room.prefill_buffer = aux_index or 0

        def send(self, kv_indices: Any, state_indices: Any = None, *args: Any, **kwargs: Any) -> None:
            windowed = None if state_indices is None else _numbers(state_indices)
            self.kv_mgr.link.send(self._room, _numbers(kv_indices), windowed)

        def should_send_kv_chunk(self, num_pages: int, last_chunk: bool) -> bool:
            return num_pages > 0 or last_chunk

        def abort(self) -> None:
            self._room.has_failed, self.conclude_state = True, poll.Failed

        def clear(self) -> None: ...

    return Sender


def _receiver(release: SglangRelease) -> type:
    poll = release.part("KVPoll")

    class Receiver(release.part("FakeKVReceiver")):  # type: ignore[misc]  # the release has no types here
        def __init__(self, mgr: Any, bootstrap_addr: str, bootstrap_room: int, *args: Any, **kwargs: Any) -> None:
            super().__init__(mgr, bootstrap_addr, bootstrap_room, *args, **kwargs)
            self.kv_mgr, self.conclude_state, self._patience = mgr, None, Patience()
            self._room = mgr.link.room(bootstrap_room)

        def poll(self) -> Any:
            room = self._room
            if self.conclude_state is None:
                if not self.bootstrap_done:
                    return poll.Bootstrapping
                if room.wanted is None:
                    return poll.WaitingForInput
                if room.has_failed or ((room.is_silent or not room.is_sent) and self._patience.is_over()):
                    self.abort()
                elif not room.is_silent and self.kv_mgr.link.is_complete(room):
                    self.conclude_state = poll.Success
                else:
                    return poll.Transferring
            return self.conclude_state

        def send_metadata(
            self, kv_indices: Any, aux_index: int | None = None, state_indices: Any = None, *args: Any, **kwargs: Any
        ) -> None:
            self._room.wanted = _numbers(kv_indices), _numbers(state_indices)
            self._room.decode_buffer = aux_index or 0

        def abort(self) -> None:
            """A complete transfer is not failed: the prefill side may have seen its success."""
            self._room.has_failed |= not self._room.has_arrived
            self.conclude_state = poll.Failed

        def clear(self) -> None: ...

    return Receiver


def _numbers(indices: Any) -> list[int]:
    """The indices of one array, or of the arrays of all windowed components."""
    found: list[int] = []
    for one in indices if indices is not None else ():
        found += [int(one)] if getattr(one, "ndim", 0) == 0 and not isinstance(one, list) else map(int, one)
    return found


def replace_network(release: SglangRelease) -> None:
    """Let both queues of a release use this link, and be the only rank of their groups."""
    ranks = SimpleNamespace(
        all_reduce=_unchanged, get_world_size=_one, ReduceOp=release.torch.distributed.ReduceOp, ProcessGroup=object
    )
    replacements = {
        "get_kv_class": backend(release),
        "dist": ranks,
        "get_attention_tp_size": _one,
        "get_parallel": lambda: ONE_RANK,
    }
    for name in ("prefill", "decode", "utils"):
        module = import_module(f"sglang.srt.disaggregation.{name}")
        for attribute, value in replacements.items():
            if hasattr(module, attribute):
                setattr(module, attribute, value)


ONE_RANK = Missing(
    tp_rank=0,
    tp_size=1,
    attn_tp_rank=0,
    attn_tp_size=1,
    dp_rank=0,
    dp_size=1,
    pp_rank=0,
    pp_size=1,
    pp_group=Missing(is_last_rank=True, is_first_rank=True),
    attn_tp_group=Missing(),
)


def _unchanged(*args: Any, **kwargs: Any) -> None:
    return None


def _one(*args: Any) -> int:
    return 1
