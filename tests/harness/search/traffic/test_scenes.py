"""Scenes reach the states for which they are made, and only faults of the run are injected."""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.ops import (
    CloseSession,
    Inject,
    OpenSession,
    Pause,
    PauseMode,
    Reset,
    Resume,
    Step,
    Submit,
    Turn,
    expand,
)
from swarden.harness.core.target import Pool, Shape
from swarden.harness.engines.own.config import suited
from swarden.harness.engines.own.faults import FAULTS
from swarden.harness.engines.own.mutants.catalog import BY_ID
from swarden.harness.engines.own.target import OwnTarget
from swarden.harness.search.traffic.draws import fault_sets, troubles
from swarden.harness.search.traffic.loads import LOADS, OUTLASTING, RETURNING
from swarden.harness.search.traffic.scenes import lacks, meanwhiles, outlasts, pauses, resets
from swarden.harness.search.traffic.traffic import HypothesisDraw
from tests.harness.driving import own_driver

SMALL = EngineConfig(page_size=4, full_pages=16, swa_pages=12, sliding_window=6, max_running_requests=4, chunk_len=16)
steady = settings(derandomize=True, database=None, deadline=None)


@steady
@given(faults=fault_sets(tuple(FAULTS)), data=st.data())
def test_injected_faults_are_faults_of_the_run(faults, data):
    ops = data.draw(troubles(faults))

    assert set(faults) <= set(FAULTS)
    assert {op.fault for op in ops if isinstance(op, Inject)} <= set(faults)
    assert ops[-1] == Step() or bool(faults)


@steady
@given(ops=pauses(LOADS[0], (0, 1), pausable=(1,)))
def test_pause_of_a_side_that_has_pauses_is_resumed_or_lasts_and_at_most_one_op_is_in_between(ops):
    acts = [op for op in ops if not isinstance(op, Step)] + [Step()] * (Resume not in map(type, ops))
    begin = next(place for place, op in enumerate(acts) if isinstance(op, Pause))
    before, (pause, *between, last) = [type(op) for op in acts[:begin]], acts[begin:]

    assert pause.engine == 1
    assert last in (Resume(engine=1), Step())
    assert len(between) <= 1
    assert before == [OpenSession, Turn] * (CloseSession in map(type, between))


@steady
@given(data=st.data(), modes=st.sampled_from([(PauseMode.RETRACT,), (PauseMode.RETRACT, PauseMode.KEEP)]))
def test_prompt_is_repeated_behind_a_reset_and_pauses_have_the_modes_of_the_machine(data, modes):
    ops = data.draw(resets(LOADS[0], Shape(), modes))

    kinds = [type(op) for op in ops]
    assert {op.mode for op in ops if isinstance(op, Pause)} <= set(modes)
    assert Submit in kinds[: kinds.index(Reset)]
    assert Submit in kinds[kinds.index(Reset) :]


# --- sequences of ops reach the states for which they are made


def share_that_fails(mutant, load, scene, *, times=1):
    """The share of runs that fail in an engine with a bug; a run has the scene `times` times."""
    failed = []

    @settings(steady, max_examples=40)
    @given(data=st.data())
    def play(data):
        config = suited(HypothesisDraw(data), SMALL, load.name)
        driver = own_driver("engine", [config], model="")
        for _ in range(times):
            for op in data.draw(scene(OwnTarget().shape(config))):
                driver.apply(op)
        failed.append(driver.failure is not None)

    with BY_ID[mutant].planted():
        play()

    return sum(failed) / len(failed)


@given(ops=outlasts(Shape(page_size=16, pools=[Pool("context", 400)], max_context_len=1024)))
@steady
def test_outlasting_requests_fill_a_pool_of_several_contexts(ops):
    requests = [op for op in ops if isinstance(op, Submit)]
    lengths = [len(expand(request.recipe)) for request in requests]
    in_all = sum(lengths) + sum(request.max_new_tokens for request in requests)

    assert len(requests) > 2
    assert 6000 <= sum(lengths) <= 400 * 16 or sum(lengths) < 400 * 16 < in_all
    assert max(length + request.max_new_tokens for length, request in zip(lengths, requests, strict=True)) < 1024


def test_many_outlasting_requests_grow_into_pages_with_slow_backups():
    """One of four runs fails with a bug by which the engine drops copies in flight."""
    assert share_that_fails("S156", OUTLASTING, outlasts, times=4) > 1 / 4


def test_requests_end_during_a_load():
    """One of ten runs fails with a bug by which a request that ends stays in the queue of loads."""
    scene = partial(meanwhiles, RETURNING, modes=(PauseMode.RETRACT,))

    assert share_that_fails("S138", RETURNING, scene, times=2) > 1 / 10


def test_windows_are_loaded_alone():
    """A third of the runs fail with a bug by which a window is loaded only with the pages of a whole prefix."""
    assert share_that_fails("S130", RETURNING, partial(lacks, modes=(PauseMode.RETRACT,))) > 1 / 3
