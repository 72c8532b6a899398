"""Random traffic for engines that are perturbed."""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import rule

from swarden.harness.core.ops import Inject, Op, Step
from swarden.harness.engines.own.faults import PERTURBATIONS, SENT
from swarden.harness.search.pairs import SIDES, PairTraffic, turns
from swarden.harness.search.traffic import EngineTraffic

SKIPS = (4, 0, 1, 2, 9, 20)  # crossings, so that pages are cached and copied before one of them is changed
ALONE = tuple(fault for fault in PERTURBATIONS if fault != SENT)


@st.composite
def perturbations(draw: st.DrawFn, faults: tuple[str, ...]) -> tuple[Op, ...]:
    """A perturbation, and steps in which it can be made and read."""
    inject = Inject(fault=draw(st.sampled_from(faults)), skip=draw(st.sampled_from(SKIPS)))
    return inject, Step(count=draw(st.integers(1, 8)))


class PerturbedTraffic(EngineTraffic):
    """The traffic of whole engines, and perturbations."""

    machine = "perturbed"

    @rule(ops=perturbations(ALONE))
    def perturb(self, ops: tuple[Op, ...]) -> None:
        self.apply_all(ops)


class PerturbedPairTraffic(PairTraffic):
    """The traffic of a pair, and perturbations of both sides."""

    machine = "perturbed-pd"

    @rule(ops=perturbations((SENT, *PERTURBATIONS)), side=st.sampled_from(SIDES), after=turns())
    def perturb(self, ops: tuple[Op, ...], side: int, after: tuple[Op, ...]) -> None:
        self.apply_all((msgspec.structs.replace(ops[0], engine=side), *after))
