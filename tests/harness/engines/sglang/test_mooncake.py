"""The network of the release's Mooncake connector: what a transfer copies and when, and what a side must be told."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.sglang.parts.link import LINK_DROP, LINK_FAILS, LINK_FAULTS, LINK_LATE, TransferMemory
from swarden.harness.engines.sglang.parts.mooncake import (
    FAULTS,
    LATE_STEPS,
    TOLD_STEPS,
    MooncakeLink,
    Queue,
    Socket,
)
from swarden.harness.kit.lockstep import LockstepThread
from swarden.harness.kit.stand_ins import Missing
from swarden.harness.kit.tags import TagMemory
from swarden.invariants.events import PeerGaveUp

ROOM, UNIT = 1, 8  # the bytes of a page
KEYS = [ctypes.create_string_buffer(80) for _ in range(2)]  # of each side
MEMORY = [*map(ctypes.addressof, KEYS)]


def manager(side: int) -> Any:
    none = ("aux_data_ptrs", "aux_data_lens", "state_data_ptrs", "state_data_lens", "state_item_lens")
    keys = {"kv_data_ptrs": [MEMORY[side]], "kv_data_lens": [80], "kv_item_lens": [UNIT]}
    args = SimpleNamespace(**keys, **dict.fromkeys(none, ()))
    return Missing(kv_args=args, request_status={ROOM: 2}, swarden_failed=set(), swarden_threads=[])


def linked() -> tuple[MooncakeLink, FaultPlan, list[Any]]:
    """A pair with a room of two pages, of which the prefill side sends pages 1 and 2."""
    faults, events = FaultPlan({**LINK_FAULTS, **FAULTS}), list[Any]()
    link = MooncakeLink(1)
    link.managers = [manager(0), manager(1)]
    link._polls = SimpleNamespace(Failed=0, Success=4)
    link.prefill, link.decode = [
        TransferMemory((TagMemory(9),), SimpleNamespace(), faults, events.append) for _ in range(2)
    ]
    link.prefill.tags[0].write([1, 2], [11, 12])
    link.room(ROOM).request_id, link.room(ROOM).wanted = 5, ([4, 3], [])
    for _ in range(2):
        link.listen()
    return link, faults, events


def sent(link: MooncakeLink) -> list[int]:
    """The answers of a transfer engine to a thread of the prefill side, which sends two pages."""
    answers, chunks = list[int](), Queue([SimpleNamespace(room=ROOM)])

    def run() -> None:
        chunks.get()
        sources = [MEMORY[0] + UNIT, MEMORY[0] + 2 * UNIT]
        answers.append(
            link.engine().batch_transfer_sync("", sources, [MEMORY[1] + 4 * UNIT, MEMORY[1] + 3 * UNIT], [UNIT] * 2)
        )

    thread = LockstepThread(run)
    link.managers[0].swarden_threads.append(thread)
    thread.start()
    return answers


def received(link: MooncakeLink) -> list[int]:
    return [*link.decode.tags[0].read([3, 4])]


def test_transfer_copies_pages_to_their_places() -> None:
    link, _, events = linked()

    assert (sent(link), received(link)) == ([0], [12, 11])
    assert [(event.request_id, event.places, event.pages) for event in events] == [(5, (0,), (4,)), (5, (1,), (3,))]


@pytest.mark.parametrize("other", [True, False], ids=["steps-of-both-sides", "steps-of-one-side"])
def test_late_transfer_reads_its_pages_when_it_ends(other: bool) -> None:
    link, faults, _ = linked()
    faults.arm(LINK_LATE)
    answers = sent(link)
    link.prefill.tags[0].write([2], [99])

    for _ in range(LATE_STEPS):
        link.begin_step(is_decode=False)
        assert (answers, received(link), link.has_late_pages) == ([], [0, 0], True)
        link.begin_step(is_decode=other)
    link.begin_step(is_decode=False)

    assert (answers, received(link), link.has_late_pages) == ([0], [99, 11], False)


def test_failed_transfer_copies_half_of_its_blocks() -> None:
    link, faults, _ = linked()
    faults.arm(LINK_FAILS)

    assert (sent(link), received(link)) == ([-1], [0, 11])


@pytest.mark.parametrize("is_told", [True, False])
def test_failure_is_told_within_some_steps(is_told: bool) -> None:
    link, _, events = linked()
    link.managers[0].swarden_failed.add(ROOM)
    if is_told:
        link.managers[1].request_status.clear()

    for is_decode in (False, True) * (TOLD_STEPS + 2):
        link.begin_step(is_decode=is_decode)

    assert (PeerGaveUp(5) in events) is not is_told


def test_lost_message_excuses_a_failure_that_is_not_told() -> None:
    link, faults, _ = linked()
    faults.arm(LINK_DROP)
    socket = Socket()
    socket.connect("tcp://decode:2")

    socket.send_multipart([b"1", b"0", b"0"])

    assert (any(link.boxes), link._lost) == (False, {ROOM})
