"""Requests with several sequences: the front end of a release makes a request of each, and answers their client."""

from typing import Any

import msgspec

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Drain, Recipe, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of, run_log
from swarden.harness.core.system import EngineSystem
from swarden.invariants.events import FinishReason, Loaded
from tests.engines.some_runs import events_of, is_same_under_hash_seeds, served
from tests.engines.vllm.some_requests import core_of

THREE = Submit(recipe=Recipe(stretch=9), max_new_tokens=3, sequences=3)
NEWEST = "0.33.0"


def seeds(engine):
    """The seeds of the requests that reach the core, by the ids of the requests."""
    engine_core = core_of(engine, {})
    EngineSystem(engine_core).do(msgspec.structs.replace(THREE, seed=5))
    return {rid: req.sampling_params.seed for rid, req in engine_core.built.scheduler.requests.items()}


def digests(engine):
    """The digests of a run in which the client of running sequences is gone."""
    ops = [msgspec.structs.replace(THREE, sequences=8, max_new_tokens=9), Step(count=8), Abort(), Drain()]
    return run_log(OpLog(Header(engine=engine, configs=[{}]), ops), keep_digests=True).digests


def forgetful(engine):
    """The result of a run in which the front end forgets a sequence of an aborted request."""
    target_of(engine).prepare_process()
    driver: Any = driver_of(Header(engine=engine, configs=[{}]))
    processor = driver.systems[0].port.requests.front._processor
    abort = processor.abort_requests
    processor.abort_requests = lambda rids, internal: abort([rid for rid in rids if rid != "0_1"], internal)
    for op in (THREE, Step(), Abort(), Drain()):
        driver.apply(op)
    return {name.split("/")[0] for name in driver.failure.fingerprints}


def test_each_sequence_is_answered(release, on_release):
    result = on_release(release, served, f"vllm=={release}", {}, [THREE], 8)

    [first, *others] = result.outputs.values()
    assert (len(first), others) == (3, [first, first])
    assert result.ends == dict.fromkeys((1, 2, 3), FinishReason.LENGTH)


def test_client_that_is_gone_ends_all_sequences(release, on_release):
    result = on_release(release, served, f"vllm=={release}", {}, [THREE, Step(), Step(), Step(), Abort(request=1)], 3)

    assert (result.ends, result.num_live) == (dict.fromkeys((1, 2, 3), FinishReason.ABORT), 0)


def test_order_of_the_ends_is_the_same_in_each_process():
    assert is_same_under_hash_seeds(digests, f"vllm=={NEWEST}")


def test_prompt_that_is_too_long_is_rejected_for_each_sequence(on_release):
    long = Submit(recipe=Recipe(stretch=40), max_new_tokens=200, sequences=2)

    result = on_release(NEWEST, served, f"vllm=={NEWEST}", {}, [long], 1)

    assert result.ends == dict.fromkeys((1, 2), FinishReason.REJECTED)


def test_each_sequence_has_a_seed_of_its_own(on_release):
    assert on_release(NEWEST, seeds, f"vllm=={NEWEST}") == {"0_1": 5, "1_1": 6, "2_1": 7}


def test_sequence_that_the_front_end_forgets_is_found(on_release):
    assert on_release(NEWEST, forgetful, f"vllm=={NEWEST}") == {"aborted_prompts_are_not_computed"}


def test_prompt_of_each_sequence_is_loaded_in_the_background(on_release):
    settings = {"external_len": 4, "late_loads": True}

    result = on_release(NEWEST, served, f"vllm=={NEWEST}", settings, [THREE], 20)

    assert {event.request_id for event in events_of(result, Loaded)} == {1, 2, 3}
    assert result.ends == dict.fromkeys((1, 2, 3), FinishReason.LENGTH)
