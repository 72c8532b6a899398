"""Random traffic for engines that are perturbed."""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.components.configurations import configurations, with_drafts, with_sessions
from swarden.harness.core.ops import Inject, Op, Step
from swarden.harness.engines.own import pair_traffic, traffic
from swarden.harness.engines.own.faults import PERTURBATIONS, SENT
from swarden.harness.engines.own.loads import LOADS, LoadProfile, Traffic
from swarden.harness.search.machine import Machine

CONFIGURATIONS = with_drafts(with_sessions(configurations(host_ratios=(2, 0, 0.5))))
SKIPS = (4, 0, 1, 2, 9, 20)  # crossings, so that pages are cached and copied before one of them is changed


@st.composite
def perturbations(draw: st.DrawFn, faults: tuple[str, ...]) -> tuple[Op, ...]:
    """A perturbation, and steps in which it can be made and read."""
    inject = Inject(fault=draw(st.sampled_from(faults)), skip=draw(st.sampled_from(SKIPS)))
    return inject, Step(count=draw(st.integers(1, 8)))


class PerturbedTraffic(Machine):
    """One rule that draws ops of whole engines and perturbations."""

    machine = "perturbed"
    has_scenes = True
    ops: st.SearchStrategy[tuple[Op, ...]] = st.nothing()

    @initialize(config=CONFIGURATIONS, kinds=st.sampled_from(traffic.TRAFFICS), load=st.sampled_from(LOADS))
    def configure(self, config: EngineConfig, kinds: Traffic, load: LoadProfile) -> None:
        self.begin([load.on(config)])
        alone = tuple(fault for fault in PERTURBATIONS if fault != SENT)
        usual = traffic.ops_of(kinds, load, self.configs[0], ())
        self.ops = st.one_of(usual, usual, usual, perturbations(alone))

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        self.apply_all(data.draw(self.ops))


class PerturbedPairTraffic(Machine):
    """One rule that draws ops of a pair and perturbations of both sides."""

    machine = "perturbed-pd"
    has_scenes = True
    load = pair_traffic.LOADS[0]

    @initialize(load=st.sampled_from(pair_traffic.LOADS), data=st.data())
    def configure(self, load: LoadProfile, data: st.DataObject) -> None:
        self.load = load
        self.begin(data.draw(pair_traffic.sides(load)))

    @rule(data=st.data(), side=st.sampled_from((pair_traffic.DECODE, pair_traffic.PREFILL)), coin=st.integers(0, 3))
    def act(self, data: st.DataObject, side: int, coin: int) -> None:
        if coin == 3:
            inject, _ = data.draw(perturbations((SENT, *PERTURBATIONS)))
            self.apply_all((msgspec.structs.replace(inject, engine=side), *data.draw(pair_traffic.turns())))
        else:
            self.apply_all(data.draw(pair_traffic.pair_ops(self.load, ())))
