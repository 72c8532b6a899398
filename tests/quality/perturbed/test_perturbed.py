"""The level content notices each perturbation by the first read of the changed content, and blames nothing else."""

from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.core.ops import ENGINE_OPS, Inject, Op, Step, Submit
from swarden.harness.engines.own.config import random_config, random_pair
from swarden.harness.engines.own.target import PAIR_OPS, SIDES, OwnTarget
from swarden.harness.search.traffic.loads import LOADS, LOADS_OF_PAIRS, MIXES
from swarden.harness.search.traffic.pairs import DECODE, PREFILL, alternating_steps
from swarden.harness.search.traffic.traffic import HypothesisDraw, Requests, kinds_of, ops_of
from tests.quality.perturbed.changes import CHANGES, COPIED, SENT, USED
from tests.quality.perturbed.engines import Misattributed, PerturbedRun, Unnoticed

CONFIG = EngineConfig(
    page_size=4,
    full_pages=40,
    swa_pages=24,
    sliding_window=6,
    max_running_requests=4,
    max_context_len=128,
    chunk_len=16,
    host_full_pages=80,
    host_swa_pages=40,
    load_back_threshold=1,
)
MODEL = "tiny-gemma3"
WITHIN_AN_ENGINE = (*CHANGES, COPIED)
MOST_SEEDS = 120  # most runs prove nothing: the changed page is freed before it is read, or there is nothing to change
HEALTHY_STEPS = (4, 20)
MOST_STEPS = 60  # after the perturbation; every page is swept in them
FAMILIES = 3  # of prompts with the same start
SUBMISSIONS = 0.4  # per step

CALLS = 30
SKIPS = (4, 0, 1, 2, 9, 20)  # crossings, so that pages are cached and copied before one of them is changed
steady = settings(derandomize=True, database=None, deadline=None, max_examples=20)


def run_of(fault: str, seed: int) -> PerturbedRun:
    model = MODEL if seed % 2 and fault != SENT else ""  # see noticed_seed
    return PerturbedRun([CONFIG.for_side(role) for role in SIDES] if fault == SENT else [CONFIG], model)


def ops_with(fault: str, seed: int) -> list[Op]:
    """Random requests; after some healthy steps a perturbation of this kind is made."""
    chance, engines = Random(seed), range(len(SIDES) if fault == SENT else 1)
    num_healthy = chance.randint(*HEALTHY_STEPS)
    ops: list[Op] = []
    for step in range(num_healthy + MOST_STEPS):
        if step == num_healthy:
            ops.append(Inject(engine=engines[-1], fault=fault))
        if chance.random() < SUBMISSIONS:
            start = chance.randrange(FAMILIES)
            prompt = (*range(start, start + chance.randint(6, 30)), 60 + chance.randrange(8))
            ops.append(Submit(tokens=prompt, max_new_tokens=chance.randint(3, 12)))
        ops += [Step(engine=engine) for engine in engines]
    return ops


def is_noticed(fault: str, seed: int) -> bool:
    """Whether a perturbation was read in a run, and so was noticed; raises if the level content is wrong."""
    run = run_of(fault, seed)
    run.play(ops_with(fault, seed))
    assert run.is_noticed or not run.is_open, f"{fault}, seed {seed}: missed"
    return run.is_noticed


def noticed_seed(fault: str, with_model: bool = False) -> int:
    return next(seed for seed in range(with_model, MOST_SEEDS, 2) if is_noticed(fault, seed))


def healthy(ops: Sequence[Op]) -> list[Op]:
    return [op for op in ops if not isinstance(op, Inject)]


def broken_check(healthy: str, broken: str) -> Mutant:
    """A check whose comparison of bytes is broken."""
    hunk = Hunk("swarden.harness.engines.own.content.slots:SlotTable.altered", healthy, broken)
    return Mutant("broken", "made up for a test", (hunk,), ("made_up",))


BLIND = broken_check("if not len(written):", "if True:")
WRONG_PAGE = broken_check("zip(pages.tolist(),", "zip((pages + 1).tolist(),")
FALSE_ALARM = broken_check("return []", "return [(1, 0)]")


@pytest.mark.parametrize("fault", [*WITHIN_AN_ENGINE, SENT])
def test_perturbation_is_noticed_and_nothing_else_is_blamed(fault):
    """The same runs without the perturbation pass."""
    for with_model in (False, True):
        seed = noticed_seed(fault, with_model)
        run_of(fault, seed).play(healthy(ops_with(fault, seed)))


def test_check_that_compares_no_bytes_is_detected():
    seed = noticed_seed(USED)

    with BLIND.planted(), pytest.raises(Unnoticed, match="it was read, and was not noticed"):
        run_of(USED, seed).play(ops_with(USED, seed))


def test_check_that_blames_another_page_is_detected():
    seed = noticed_seed(USED)

    with WRONG_PAGE.planted(), pytest.raises(Misattributed):
        run_of(USED, seed).play(ops_with(USED, seed))


def test_check_that_blames_a_healthy_engine_is_detected():
    with FALSE_ALARM.planted(), pytest.raises(Misattributed):
        run_of(USED, 0).play(healthy(ops_with(USED, 0)))


@st.composite
def perturbations(draw: st.DrawFn, faults: Sequence[str], engine: int = 0) -> tuple[Op, ...]:
    """A perturbation, and steps in which it can be made and read."""
    inject = Inject(engine=engine, fault=draw(st.sampled_from(faults)), skip=draw(st.sampled_from(SKIPS)))
    return inject, Step(engine=engine, count=draw(st.integers(1, 8)))


@st.composite
def usual(draw: st.DrawFn, requests: Requests, ops: Sequence[type[Op]], engine: int = 0) -> tuple[Op, ...]:
    """Ops without faults, of a mix and a load."""
    supported = kinds_of(ops, requests)
    kinds = [kind for mix in MIXES for kind in (*mix, *requests.load.also) if kind in supported]
    drawn = draw(ops_of(draw(st.sampled_from(kinds)), requests))
    return tuple(msgspec.structs.replace(op, engine=engine) for op in drawn)


def test_perturbations_in_random_traffic_are_noticed():
    noticed = []

    @steady
    @given(load=st.sampled_from(LOADS), data=st.data())
    def play(load, data):
        config = random_config(HypothesisDraw(data), load.name)
        run, requests = PerturbedRun([config]), Requests(load, OwnTarget().shape(config), ())
        for _ in range(CALLS):
            ops = usual(requests, ENGINE_OPS) if data.draw(st.integers(0, 3)) else perturbations(WITHIN_AN_ENGINE)
            run.play(data.draw(ops))
        noticed.append(run.is_noticed)

    play()

    assert any(noticed)


def test_perturbations_in_random_traffic_of_a_pair_are_noticed():
    noticed = []
    perturbed = [perturbations((SENT, SENT, *WITHIN_AN_ENGINE), side) for side in (DECODE, PREFILL)]

    @steady
    @given(load=st.sampled_from(LOADS_OF_PAIRS), data=st.data())
    def play(load, data):
        configs = random_pair(HypothesisDraw(data), load.name)
        run = PerturbedRun(configs)
        of_side = [
            usual(Requests(load, OwnTarget().shape(one), ()), PAIR_OPS, side) for side, one in enumerate(configs)
        ]
        for _ in range(CALLS):
            run.play(data.draw(st.one_of(*of_side, *of_side, *perturbed)))
            run.play(data.draw(alternating_steps()))
        noticed.append(run.is_noticed)

    play()

    assert any(noticed)
