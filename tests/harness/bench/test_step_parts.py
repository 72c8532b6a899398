"""The parts of a checked step: the stand-in for a model is counted apart from the port."""

import sys
from types import FunctionType

import pytest

from swarden.harness.bench.step_parts import ENGINE, MODEL, PORT, Sampler
from swarden.harness.core import driver as driving
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.engines.sglang.target import SglangTarget
from swarden.harness.engines.vllm.target import VllmTarget

REFERENCE = "swarden.invariants.reference"


def do(call):
    return call()


def through(modules, sampler):
    """The part of a sample in the last of these modules, which the driver has called through the others."""
    call = lambda: sampler._part(sys._getframe(1))  # noqa: E731  # its own frame is not the sample's
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
    sampler = Sampler(target)
    engine = [adapter, f"{package}.core"]

    assert target.code.stand_ins
    assert through(engine, sampler) == ENGINE
    for stand_in in target.code.stand_ins:
        assert through([*engine, stand_in], sampler) == MODEL
        assert through([*engine, stand_in, REFERENCE], sampler) == MODEL  # it computes the tags of the model
        assert through([*engine, stand_in, "torch.nn"], sampler) == MODEL
    assert through([adapter], sampler) == PORT
    assert through(["swarden.harness.core.system", REFERENCE], sampler) == PORT
