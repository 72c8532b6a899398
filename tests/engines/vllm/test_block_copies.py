"""The release's SimpleCPUOffloadConnector: blocks that have left the device come back from CPU memory."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Abort, Drain, Inject, Recipe, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.connector import LOAD_LATE
from swarden.harness.engines.vllm.parts.offload import EAGER, LAZY
from swarden.harness.kit.settings import made
from swarden.invariants.events import CopiedIn

NEWEST = "0.33.0"
LONG, OTHER = Recipe(path=(0, 0, 0), stretch=8), Recipe(path=(1, 0, 0), stretch=8)


def driven(engine, changes, ops):
    """The driver after these ops, and the number of loads."""
    target = target_of(engine)
    config = target.decode({"windows": (), "num_blocks": 52, "cpu_chunks": 40, **changes})
    header = Header(engine=target.name, version=target.version(), configs=[target.encode(config)])
    seen = []
    driver = driver_of(header, observe=lambda change: seen.extend(change.events_of(CopiedIn)))
    for op in ops:
        driver.apply(op)
    return driver, len(seen)


def served_again(engine, changes):
    """The failure of two equal requests with another one between them, if any, and the number of loads."""
    ops = [Submit(recipe=recipe, max_new_tokens=4) for recipe in (LONG, OTHER, LONG)]
    driver, num_loads = driven(engine, changes, [one for op in ops for one in (op, Drain())])
    return driver.failure, num_loads


def aborted_during_its_load(engine, changes):
    """The failure of a run in which the client of a late load is gone, if any, and the number of loads."""
    submit = Submit(recipe=LONG, max_new_tokens=4)
    ops = [submit, Drain(), Inject(fault=LOAD_LATE), submit, Step(count=2), Abort(request=0), Step(count=2), Drain()]
    driver, num_loads = driven(engine, changes, ops)
    return driver.failure, num_loads


@pytest.mark.parametrize("asynchronous", [False, True], ids=["", "asynchronous"])
@pytest.mark.parametrize("windows", [(), (5,)], ids=["", "with-a-window"])
def test_equal_request_reads_its_blocks_from_cpu_memory(on_release, asynchronous, windows):
    changes = {"offloader": EAGER, "asynchronous": asynchronous, "windows": windows, "num_blocks": 60}

    assert on_release(NEWEST, served_again, f"vllm=={NEWEST}", changes) == (None, 1)


def test_load_that_outlives_its_request_keeps_its_blocks_until_it_ends(on_release):
    assert on_release(NEWEST, aborted_during_its_load, f"vllm=={NEWEST}", {"offloader": EAGER}) == (None, 1)


def test_oldest_release_copies_blocks_and_no_chunks(on_release):
    changes = {"offloader": EAGER}

    assert on_release("0.20.2", served_again, "vllm==0.20.2", changes) == (None, 1)
    with pytest.raises(InvalidConfig, match='offloader is "chunks" with cpu_chunks, want "eager" or "lazy"'):
        on_release("0.20.2", served_again, "vllm==0.20.2", {})


def test_offloader_of_blocks_has_no_second_tier():
    with pytest.raises(InvalidConfig, match='has_disk is true with offloader "lazy", want false'):
        made(VllmConfig, {"cpu_chunks": 8, "offloader": LAZY, "has_disk": True})
