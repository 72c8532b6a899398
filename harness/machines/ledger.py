"""Random traffic for the ledgers alone."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine_under_test.config import EngineConfig
from harness.machines.base import Machine
from harness.machines.draws import configurations
from harness.ops import Complete, Drain, Free, Give, Op, Pressure, Take, TakeOver

KINDS = (
    *("take",) * 8,
    *("free",) * 4,
    *("free_windowed",) * 6,
    "take_over",
    "give",
    "pressure",
    "fence",
    "drain",
)
PAGE_SIZES = (4, 1, 2)  # so that pools have many pages
PARTS = ("all", "all", "all", "rest")


@st.composite
def ledger_ops(draw: st.DrawFn) -> Op:
    """An op for few owners, so that they meet; most of what is freed was taken shortly before."""
    owner = draw(st.integers(0, 3))
    match draw(st.sampled_from(KINDS)):
        case "take":
            return Take(owner=owner, count=draw(st.integers(1, 5)))
        case "give":
            return Give(owner=owner, to=draw(st.integers(0, 3)), count=draw(st.integers(1, 6)))
        case "free_windowed":
            return Free(owner=owner, count=draw(st.integers(1, 3)), part="windowed")
        case "free":
            fenced = draw(st.integers(0, 3)) > 0
            return Free(owner=owner, count=draw(st.integers(1, 4)), part=draw(st.sampled_from(PARTS)), fenced=fenced)
        case "take_over":
            return TakeOver(owner=owner, giver=draw(st.integers(0, 3)), count=draw(st.integers(1, 4)))
        case "pressure":
            return Pressure(pool=draw(st.integers(0, 1)), pages=draw(st.sampled_from((0, 0, 1, 3))))
        case "fence":
            return Complete()
        case _:
            return Drain() if draw(st.integers(0, 3)) == 3 else Take(owner=owner)


class LedgerTraffic(Machine):
    """One rule that draws an op (no swarm: without takes nothing else has anything to do)."""

    machine = "ledger"

    @initialize(config=configurations(page_sizes=PAGE_SIZES, kinds=("both",) * 4 + ("full", "swa")))
    def configure(self, config: EngineConfig) -> None:
        self.begin([config])

    @rule(op=ledger_ops())
    def act(self, op: Op) -> None:
        self.apply(op)
