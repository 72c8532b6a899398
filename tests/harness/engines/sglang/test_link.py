"""The link between a prefill and a decode side, and the configurations that can be linked."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.sglang.parts.link import DELAY_POLLS, LATE_STEPS, LINK_FAULTS, SglangLink, TransferMemory
from swarden.harness.engines.sglang.parts.pair import DECODE, PREFILL
from swarden.harness.engines.sglang.target import SglangTarget
from swarden.harness.kit.tags import TagMemory

PAGE = 2


def linked(fault=None, *, in_chunks=False):
    """A link with one room: two pages and one windowed page are sent, and both sides' memories.

    In two chunks, the second is sent a step later, and has the fault, too.
    """
    faults = FaultPlan(LINK_FAULTS)
    ends = [
        TransferMemory((TagMemory(3, PAGE), TagMemory(3, PAGE)), SimpleNamespace(), faults, list[NamedTuple]().append)
        for _ in range(2)
    ]
    for memory in ends[0].tags:
        memory.write(range(PAGE, 8), range(PAGE, 8))
    link = SglangLink(1)
    link.prefill, link.decode = ends
    room = link.room(1)
    room.wanted = [3, 1], [2]
    if fault is not None:
        faults.arm(fault)
    if in_chunks:
        link.send(room, [1], None)
        link.begin_step(is_decode=True)
        faults.arm(fault)
    link.send(room, [2] if in_chunks else [1, 2], [1])
    return link, room, [end.tags for end in ends]


def test_transfer_reads_the_pages_when_it_is_first_complete():
    """A prefill side that frees its pages earlier loses them, as with a copy in the background."""
    link, room, ((full, _), (received, windowed)) = linked()
    full.write([2], [99])

    assert link.is_complete(room)
    assert [*received.read(range(8))] == [0, 0, 4, 5, 0, 0, 99, 3]
    assert [*windowed.read(range(8))] == [0, 0, 0, 0, 2, 3, 0, 0]


def test_transfer_is_copied_once():
    """A later poll of the other side must not write to pages that are in use by then."""
    link, room, (_, (received, _)) = linked()
    link.is_complete(room)
    received.write([6], [7])

    assert link.is_complete(room)
    assert [*received.read([6])] == [7]


def test_delayed_transfer_completes_some_polls_later():
    link, room, _ = linked("link.delay")

    assert [link.is_complete(room) for _ in range(DELAY_POLLS + 1)] == [False] * DELAY_POLLS + [True]


def test_failed_transfer_writes_nothing():
    link, room, (_, (received, _)) = linked("link.fails")

    assert not link.is_complete(room)
    assert [*received.read(range(8))] == [0] * 8


def test_late_pages_of_an_aborted_transfer_are_written_before_the_acknowledgement():
    """Without the fault nothing is written after an abort, and the acknowledgement comes at once."""
    link, room, (_, (received, _)) = linked("link.late")
    at_acknowledgement = []
    link.abort(room)
    link.acknowledge(room, lambda: at_acknowledgement.append([*received.read([6])]))

    for _ in range(LATE_STEPS):
        assert at_acknowledgement == []
        link.begin_step(is_decode=True)
    assert at_acknowledgement == [[2]]
    assert not link.is_complete(room)


def test_each_late_chunk_of_an_aborted_transfer_is_written_when_it_is_due():
    """The acknowledgement follows the last one."""
    link, room, (_, (received, _)) = linked("link.late", in_chunks=True)
    seen: list[object] = []
    link.abort(room)
    link.acknowledge(room, lambda: seen.append("acknowledged"))

    for _ in range(LATE_STEPS):
        link.begin_step(is_decode=True)
        seen.append([*received.read([6, 2])])
    assert seen[-4:] == [[0, 0], [2, 0], "acknowledged", [2, 4]]


def test_sides_with_other_page_sizes_cannot_be_linked():
    """The shrinker, or the author of a log, gets the error before a side is built."""
    prefill = SglangTarget().decode({"role": PREFILL, "page_size": 4, "chunk_len": 8})

    with pytest.raises(InvalidConfig, match=r"page_size is 4 on one side and 1 on the other; make them equal"):
        SglangTarget().check_linked([prefill, SglangTarget().decode({"role": DECODE})])
