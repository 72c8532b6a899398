"""The release's offloading connector: a prefix that has left the device comes back from CPU memory."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Inject, Recipe, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.parts.copies import STORE_FAILS
from swarden.harness.engines.vllm.target import VllmTarget
from swarden.harness.kit.settings import made
from tests.engines.vllm.some_requests import answer, core_of, starts

NEWEST = "0.33.0"
LONG, OUTPUT_LEN = [*range(1, 31)], 4


def served_after_a_flush(engine, changes):
    """The outputs of two equal requests with a flush of the device between them, and where each was admitted."""
    built = core_of(engine, {"windows": (), "cpu_chunks": 40, **changes})
    outputs = []
    for _ in range(2):
        outputs.append(answer(built, LONG, OUTPUT_LEN))
        assert built.flush()
    return outputs, starts(built.log.take())


@pytest.mark.parametrize(
    ("changes", "loaded_lens"),
    [
        ({}, [0, 28]),
        ({"asynchronous": True, "windows": (4,)}, [0, 28]),
        ({"sync_loads": True, "chunk_blocks": 2}, [0, 24]),
        ({"eviction": "arc", "draft_len": 3, "drafter": "eagle"}, [0, 28]),
        ({"external_len": 12, "late_loads": True}, [12, 28]),
        ({"state_groups": 2, "asynchronous": True}, [0, 28]),
        ({"state_groups": 1, "draft_len": 2, "chunk_blocks": 2}, [0, 24]),
        ({"state_groups": 1, "external_len": 12, "late_loads": True}, [12, 28]),
    ],
    ids=[
        "in-the-background",
        "asynchronous-with-a-window",
        "within-the-step",
        "drafts",
        "behind-a-load-from-a-store",
        "states",
        "states-with-drafts",
        "states-behind-a-load-from-a-store",
    ],
)
def test_equal_request_continues_from_cpu_memory_with_the_same_output(on_release, changes, loaded_lens):
    outputs, admitted = on_release(NEWEST, served_after_a_flush, f"vllm=={NEWEST}", changes)

    assert outputs[0] == outputs[1]
    assert admitted == loaded_lens


def ended_by_a_failed_store(engine, changes):
    """The fingerprint with which a run ends in which a copy to CPU memory fails; None if it does not fail."""
    target = target_of(engine)
    config = target.decode({"windows": (), "cpu_chunks": 40, **changes})
    driver = driver_of(Header(engine=target.name, version=target.version(), configs=[target.encode(config)]))
    for op in (Inject(fault=STORE_FAILS), Submit(recipe=Recipe(stretch=8), max_new_tokens=4), Step(count=20)):
        driver.apply(op)
    return driver.failure and driver.failure.fingerprint


def test_failed_copy_to_cpu_memory_ends_the_engine(on_release):
    """vLLM pull 52838: the worker asserts that each copy succeeds. So traffic draws no such fault."""
    fingerprint = on_release(NEWEST, ended_by_a_failed_store, f"vllm=={NEWEST}", {})

    assert fingerprint.startswith("AssertionError/")
    assert "OffloadingConnectorWorker.get_finished" in fingerprint
    assert STORE_FAILS not in VllmTarget.faults


def test_copies_of_single_blocks_cannot_fail(on_release):
    assert on_release(NEWEST, ended_by_a_failed_store, f"vllm=={NEWEST}", {"offloader": "eager"}) is None


def test_offloading_without_a_prefix_cache_is_refused():
    with pytest.raises(InvalidConfig, match="with cpu_chunks 8, want"):
        made(VllmConfig, {"cpu_chunks": 8, "prefix_caching": False})


def test_store_beside_cpu_memory_is_driven_with_loads_in_the_background_only():
    with pytest.raises(InvalidConfig, match="late_loads is false with cpu_chunks and external_len, want true"):
        made(VllmConfig, {"cpu_chunks": 8, "external_len": 8})


def test_store_saves_in_the_background_only():
    with pytest.raises(InvalidConfig, match="saves is true without late_loads, want false"):
        made(VllmConfig, {"external_len": 8, "saves": True})
