"""The release's offloading connector: a prefix that has left the device comes back from CPU memory."""

from types import SimpleNamespace

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Inject, Recipe, Step, Submit
from swarden.harness.core.port import Submission
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of
from swarden.harness.engines.vllm.capture import LoadsWithinAStep
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.layers import WAITS_FOR_LOAD
from swarden.harness.engines.vllm.parts.copies import STORE_FAILS
from swarden.harness.engines.vllm.target import VllmTarget
from swarden.harness.kit.settings import made
from swarden.invariants.events import Admitted

NEWEST = "0.33.0"
PROMPT, OUTPUT_LEN = [*range(1, 31)], 4


def served_after_a_flush(engine, changes):
    """The outputs of two equal requests with a flush of the device between them, and where each was admitted."""
    target = target_of(engine)
    built = target.build(target.decode({"windows": (), "cpu_chunks": 40, **changes}))
    outputs: list[list[int]] = [[], []]
    for output in outputs:
        built.submit(Submission(PROMPT, OUTPUT_LEN, (), 0, 0))
        while built.has_work:
            for one in built.step():
                output += one.token_ids
        assert built.flush()
    return outputs, [event.start for event in built.log.take() if isinstance(event, Admitted)]


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


def scheduler_with(status, *, ended=(), running=()):
    """A scheduler with the request "1"; it has noted the ends of the loads of these requests."""
    requests = {"1": SimpleNamespace(request_id="1", status=SimpleNamespace(name=status))}
    running = [requests[one] for one in running]
    return SimpleNamespace(requests=requests, running=running, finished_recving_kv_req_ids={*ended})


GONE = scheduler_with("WAITING", ended=["2"])
LOADED = scheduler_with(WAITS_FOR_LOAD, ended=["1"])
LOADING = scheduler_with(WAITS_FOR_LOAD)
TAKEN_UP = scheduler_with("WAITING")
RUNNING = scheduler_with("RUNNING", running=["1"])


@pytest.mark.parametrize(
    ("walks", "seen"),
    [
        ([LOADED, TAKEN_UP], [True, False]),
        ([LOADED, LOADED, LOADED], [True, False, False]),
        ([LOADED, TAKEN_UP, LOADED], [True, False, False]),
        ([LOADED, RUNNING, LOADED], [True, False, True]),
        ([LOADING, LOADED], [False, False]),
        ([GONE, GONE], [False, False]),
    ],
    ids=[
        "taken-up",
        "never-taken-up",
        "loaded-again",
        "loaded-again-after-it-ran",
        "not-within-the-step",
        "request-is-gone",
    ],
)
def test_load_within_a_step_counts_once_until_its_request_runs(walks, seen):
    loads = LoadsWithinAStep()

    assert [loads.note(scheduler) for scheduler in walks] == seen
