"""What the machines draw: each configuration can be built, and trouble is made only with the faults of the run."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_under_test.config import EngineConfig
from fakes.catalog import FAULTS
from harness.machines.draws import configurations, fault_sets, troubles
from harness.machines.engine import pauses
from harness.ops import Heal, Inject, Pause, Resume, Step

steady = settings(derandomize=True, database=None, deadline=None)


@steady
@given(config=configurations())
def test_every_configuration_that_is_drawn_can_be_built(config):
    assert EngineConfig.from_mapping(config.to_mapping()) == config


@steady
@given(faults=fault_sets(), data=st.data())
def test_trouble_is_made_only_with_the_faults_of_the_run(faults, data):
    ops = data.draw(troubles(faults))

    assert set(faults) <= set(FAULTS)
    assert {op.fault for op in ops if isinstance(op, Inject)} <= set(faults)
    assert ops[-1] == Step() or bool(faults)


@steady
@given(ops=troubles(tuple(FAULTS)))
def test_what_is_healed_was_armed_just_before(ops):
    """So that healing finds something to do."""
    kinds = [type(op) for op in ops]

    assert kinds in ([Inject], [Inject, Step, Heal])


@steady
@given(ops=pauses())
def test_a_pause_ends_by_itself_or_lasts(ops):
    kinds = [type(op) for op in ops if not isinstance(op, Step)]

    assert kinds in ([Pause], [Pause, Resume])
