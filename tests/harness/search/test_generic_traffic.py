"""Generic traffic draws only the ops and faults that the engine of its configuration has."""

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from swarden.harness.core.ops import Accept, Inject, Step, Submit
from swarden.harness.core.target import ENGINE, MachineSpec, Shape
from swarden.harness.search.traffic import EngineTraffic

TARGET = SimpleNamespace(
    machines={ENGINE: MachineSpec((Submit, Step, Accept, Inject))}, faults={"link.drop": "", "load.fails": ""}
)


@settings(max_examples=50, database=None, deadline=None)
@given(st.data(), st.sampled_from([(), ("accept", "load.fails"), ("link.drop", "load.fails")]))
def test_unused_ops_and_faults_are_not_drawn(data, unused):
    shape = Shape(unused=unused)
    run = object.__new__(EngineTraffic)
    target = SimpleNamespace(**vars(TARGET), configs=lambda *_: [{}], shape=lambda _: shape)
    run.driver = None
    run.listener = SimpleNamespace(target=target, fix=lambda configs: configs, is_over=True)

    run.configure(data)

    assert set(unused).isdisjoint(run.requests.faults)
    assert not ("accept" in unused and "accept" in run.kinds)
    assert "submit" in run.kinds
    assert not ("trouble" in run.kinds and not run.requests.faults)
