"""Generic traffic draws only the ops and faults that the engine of its configuration has."""

from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarden.harness.core.errors import UsageError
from swarden.harness.core.ops import Accept, Flush, Inject, Step, Submit
from swarden.harness.core.target import ENGINE, MachineSpec, Pool, Shape, Tier
from swarden.harness.search.search import turns_of
from swarden.harness.search.traffic.loads import LOADS
from swarden.harness.search.traffic.traffic import KINDS, EngineTraffic, Requests, kinds_of, ops_of

TARGET = SimpleNamespace(
    name="some",
    machines={ENGINE: MachineSpec((Submit, Step, Accept, Inject))},
    faults={"link.drop": "", "load.fails": ""},
)


@settings(max_examples=50, database=None, deadline=None)
@given(st.data(), st.sampled_from([(), ("accept", "load.fails"), ("link.drop", "load.fails")]))
def test_unused_ops_and_faults_are_not_drawn(data, unused):
    shape = Shape(unused=unused)
    run = object.__new__(EngineTraffic)
    target = SimpleNamespace(**vars(TARGET), configs=lambda *_: [{}], shape=lambda _: shape)
    run.driver = None
    run.listener = SimpleNamespace(
        target=target, fix=lambda configs: configs, is_over=True, leave_uncounted=lambda: None
    )

    run.configure(data)

    assert set(unused).isdisjoint(run.requests.faults)
    assert not ("accept" in unused and "accept" in run.kinds)
    assert "submit" in run.kinds or not run.kinds
    assert not ("trouble" in run.kinds and not run.requests.faults)


LARGE = Shape(16, (Pool("blocks", 4096), Pool("windows", 64, 8192)), 256, 8, 131_072, uses_before_backup=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("possible", [(), ("load.late", "host.fails")], ids=["no-faults", "faults"])
def test_scene_has_only_faults_of_its_engine_and_prompts_that_an_op_log_can_have(kind, possible):
    shape = LARGE._replace(tiers=[Tier(possible[0], possible[1:], Flush())] if possible else ())

    @settings(max_examples=40, database=None, deadline=None, derandomize=True)
    @given(st.data())
    def draw(data):
        requests = Requests(data.draw(st.sampled_from(LOADS)), shape, possible, possible)
        supported = kinds_of([kind.needs for kind in KINDS.values()], requests)
        for op in data.draw(ops_of(kind if kind in supported else "submit", requests)):
            assert msgspec.json.decode(msgspec.json.encode(op), type=type(op)) == op
            assert not isinstance(op, Inject) or op.fault in possible

    draw()


def test_machines_with_the_same_traffic_each_have_their_batches():
    target = SimpleNamespace(
        name="some", machines={"engine": MachineSpec(batches=2), "small": MachineSpec(), "idle": MachineSpec(batches=0)}
    )

    assert [turn.machine for turn in turns_of(target, None)] == ["engine", "small", "engine"]
    assert [turn.machine for turn in turns_of(target, "idle")] == ["idle"]


def test_target_without_batches_is_refused():
    with pytest.raises(UsageError, match="no machine has batches"):
        turns_of(SimpleNamespace(name="some", machines={"idle": MachineSpec(batches=0)}), None)
