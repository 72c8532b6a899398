"""The network of the release's connectors: what a transfer copies and when, and what a side must be told."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.sglang.parts.connector import FAULTS, LATE_STEPS, TOLD_STEPS, ConnectorLink, Queue, Socket
from swarden.harness.engines.sglang.parts.link import (
    DELAY_POLLS,
    LINK_DELAY,
    LINK_DROP,
    LINK_FAILS,
    LINK_FAULTS,
    LINK_LATE,
    TransferMemory,
)
from swarden.harness.engines.sglang.parts.mooncake import MooncakeLink
from swarden.harness.engines.sglang.parts.nixl import Agent, NixlLink
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


def linked(kind: type[ConnectorLink] = MooncakeLink) -> tuple[Any, FaultPlan, list[Any]]:
    """A pair with a room of two pages, of which the prefill side sends pages 1 and 2."""
    faults, events = FaultPlan({**LINK_FAULTS, **FAULTS}), list[Any]()
    link = kind(1)
    link.chunks[None] = SimpleNamespace(room=ROOM)
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


def sent(link: Any) -> list[int]:
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


def received(link: Any) -> list[int]:
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

    assert (any(link.boxes), link.room(ROOM).is_silent) == (False, True)


def writing(note: bytes = b"done") -> tuple[Agent, Any]:
    """The agent of a prefill side, and a transfer of both pages that it has begun; numpy is what a release gives it."""
    agent, pages = (
        Agent("", None),
        [numpy.array([(start + UNIT * page, UNIT, 0) for page in range(6)]) for start in MEMORY],
    )
    handles = [agent.prep_xfer_dlist("", blocks, "VRAM") for blocks in pages]
    transfer = agent.make_prepped_xfer("WRITE", handles[0], [1, 2], handles[1], [4, 3], note)
    agent.transfer(transfer)
    return agent, transfer


def test_nixl_transfer_goes_on_while_nobody_asks_for_it() -> None:
    link, faults, _ = linked(NixlLink)
    faults.arm(LINK_LATE)
    agent, transfer = writing()
    link.prefill.tags[0].write([2], [99])

    assert (agent.check_xfer_state(transfer), agent.get_new_notifs()) == ("PROC", {"": []})
    for is_decode in (False, True) * LATE_STEPS:
        link.begin_step(is_decode=is_decode)
    assert (received(link), agent.check_xfer_state(transfer)) == ([99, 11], "DONE")
    assert [agent.get_new_notifs() for _ in range(2)] == [{"": [b"done"]}, {"": []}]


def test_failed_nixl_transfer_is_not_notified() -> None:
    link, faults, _ = linked(NixlLink)
    faults.arm(LINK_FAILS)
    agent, transfer = writing()

    assert (agent.check_xfer_state(transfer), agent.get_new_notifs()) == ("ERR", {"": []})
    assert received(link) == [0, 11]


def test_nixl_notification_is_late() -> None:
    link, faults, _ = linked(NixlLink)
    faults.arm(LINK_DELAY, skip=1)
    agent, transfer = writing()

    assert (agent.check_xfer_state(transfer), agent.get_new_notifs()) == ("DONE", {"": []})
    for is_decode in (False, True) * DELAY_POLLS:
        assert link.has_late_pages
        link.begin_step(is_decode=is_decode)
    assert agent.get_new_notifs() == {"": [b"done"]}


def test_nixl_notification_is_lost() -> None:
    link, faults, _ = linked(NixlLink)
    faults.arm(LINK_DROP)
    agent, _ = writing()

    assert (agent.get_new_notifs(), link.room(ROOM).is_silent) == ({"": []}, True)


def test_agent_refuses_strides() -> None:
    with pytest.raises(TypeError):
        Agent("", None).prep_xfer_dlist("", numpy.zeros((1, 5)), "VRAM")
