"""What the machines draw: each configuration can be built, and trouble is made only with the faults of the run."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_under_test.config import EngineConfig
from fakes.catalog import FAULTS
from harness.machines.draws import configurations, fault_sets, on_host, troubles
from harness.machines.engine import contests, crowds, pauses
from harness.machines.loads import LOADS
from harness.ops import Heal, Inject, Pause, Resume, Step, Submit

steady = settings(derandomize=True, database=None, deadline=None)


@steady
@given(config=configurations())
def test_every_configuration_that_is_drawn_can_be_built(config):
    assert EngineConfig.from_mapping(config.to_mapping()) == config


@steady
@given(config=configurations(), load=st.sampled_from(LOADS))
def test_every_configuration_can_bear_every_load(config, load):
    loaded = load.on(config)

    assert loaded.pools[0].num_pages == load.times * config.pools[0].num_pages
    assert loaded.to_mapping().items() >= load.settings.items()


@steady
@given(config=configurations(sharing=(True,)), ratio=st.sampled_from((0.5, 2)))
def test_every_configuration_that_shares_can_have_a_host(config, ratio):
    """A pool for each on the device, no smaller than was asked for."""
    hosted = on_host(config, ratio)

    assert [pool.name for pool in hosted.host_pools] == [f"host {pool.name}" for pool in config.pools]
    assert all(
        there.num_pages >= here.num_pages * ratio for here, there in zip(config.pools, hosted.host_pools, strict=True)
    )


@steady
@given(config=configurations(), load=st.sampled_from([load for load in LOADS if load.needs_host]))
def test_a_load_that_needs_a_host_has_one(config, load):
    assert load.on(config).host_pools


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


@steady
@given(ops=st.sampled_from(LOADS).flatmap(crowds))
def test_a_crowd_arrives_at_once(ops):
    *crowd, step = ops

    assert {type(op) for op in crowd} == {Submit}
    assert len(crowd) > 1
    assert isinstance(step, Step)


@steady
@given(ops=st.sampled_from(LOADS).flatmap(contests))
def test_in_a_contest_nobody_is_more_important_than_who_comes_last(ops):
    *many, _, late, last = ops

    assert max(op.priority for op in many) <= late.priority
    assert last == Step()
