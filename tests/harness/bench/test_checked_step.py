"""The traffic of a checked step keeps the engine busy, and the stand-in for a model is counted apart from the port."""

import sys
from types import FunctionType

import pytest

from swarden.harness.bench.checked_step import ENGINE, MODEL, PORT, header_of, part_of, traffic
from swarden.harness.core import driver as driving
from swarden.harness.core.ops import Step
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.replay import driver_of
from swarden.harness.engines.sglang.target import SglangTarget
from swarden.harness.engines.vllm.target import VllmTarget

REFERENCE = "swarden.invariants.reference"
WARM_STEPS = 150


def test_traffic_keeps_the_engine_busy():
    """After the first steps: 4 requests run, 70 % of both pools are used, and the tree has 20 nodes."""
    driver = driver_of(header_of(target_of(OWN), 4))
    for op in list(traffic())[:-1]:
        driver.apply(op)
        state = driver.snapshot()
        if isinstance(op, Step) and driver.counts.engine_steps > WARM_STEPS:
            assert sum(request.place == "running" for request in state.requests or ()) >= 4
            assert all(len(pool.free) <= 0.3 * pool.capacity for pool in state.pools if pool.unit == "page")
            assert len(state.nodes or ()) >= 20

    assert not driver.counts.noops.total()


def do(call):
    return call()


def through(modules, code):
    """The part of a sample in the last of these modules, which the driver has called through the others."""
    call = lambda: part_of(sys._getframe(1), code)  # noqa: E731  # its own frame is not the sample's
    for namespace in [*({"__name__": name} for name in reversed(modules)), vars(driving)]:
        call = FunctionType(do.__code__, namespace).__get__(call)
    return call()


@pytest.mark.parametrize(
    ("target", "package", "adapter"),
    [
        (target_of(OWN), "swarden.engine_under_test", "swarden.harness.engines.own.adapter"),
        (SglangTarget, "sglang", "swarden.harness.engines.sglang.adapter"),
        (VllmTarget, "vllm", "swarden.harness.engines.vllm.adapter"),
    ],
    ids=["swarden", "sglang", "vllm"],
)
def test_each_target_names_its_stand_in_which_is_no_part_of_the_port(target, package, adapter):
    code = target.code
    engine = [adapter, f"{package}.core"]

    assert code.stand_ins
    assert through(engine, code) == ENGINE
    for stand_in in code.stand_ins:
        assert through([*engine, stand_in], code) == MODEL
        assert through([*engine, stand_in, REFERENCE], code) == MODEL  # it computes the tags of the model
        assert through([*engine, stand_in, "torch.nn"], code) == MODEL
    assert through([adapter], code) == PORT
    assert through(["swarden.harness.core.system", REFERENCE], code) == PORT
