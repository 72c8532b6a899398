"""Random traffic for the ledgers alone."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.components.configurations import configurations, with_states
from swarden.harness.core.ops import Complete, Drain, Free, Give, Op, Pressure, Take, TakeOver
from swarden.harness.search.draws import options
from swarden.harness.search.machine import Machine

KINDS = (
    *("take",) * 8,
    *("free",) * 4,
    *("take_over",) * 2,
    "give",
    "pressure",
    "fence",
    "drain",
)
PAGE_SIZES = (4, 1, 2)  # so that pools have many pages
PARTS = ("all", "all", "all", "rest")


@st.composite
def take_overs(draw: st.DrawFn) -> tuple[Op, ...]:
    """Two owners take pages; one frees its windowed pages and takes over those of the other."""
    count = draw(st.integers(1, 3))
    loses = Free(owner=draw(st.integers(0, 3)), count=count, part="windowed")
    takes_over = TakeOver(owner=draw(st.integers(0, 3)), giver=draw(st.integers(0, 3)), count=count)
    return Take(owner=0, count=2), Take(owner=1, count=2), loses, takes_over


@st.composite
def ledger_ops(draw: st.DrawFn) -> tuple[Op, ...]:
    """Ops of few owners, so that their pages interact."""
    owner = draw(st.integers(0, 3))
    match draw(options(*KINDS)):
        case "take":
            return (Take(owner=owner, count=draw(st.integers(1, 5))),)
        case "give":
            to = (owner + draw(st.integers(1, 3))) % 4
            return Take(owner=owner), Give(owner=owner, to=to, count=draw(st.integers(1, 6)))
        case "free":
            part, fenced = draw(options(*PARTS)), draw(st.integers(0, 3)) > 0
            return (Free(owner=owner, count=draw(st.integers(1, 4)), part=part, fenced=fenced),)
        case "take_over":
            return draw(take_overs())
        case "pressure":
            return (Pressure(pool=draw(st.integers(0, 2)), pages=draw(options(0, 1, 3))),)
        case "fence":
            return Take(owner=owner), Free(owner=owner, fenced=True), Complete()
        case _:
            return (Drain() if draw(st.integers(0, 3)) == 3 else Take(owner=owner),)


class LedgerTraffic(Machine):
    """One rule that draws ops of all kinds in each run, because without takes every other op is a no-op."""

    machine = "ledger"

    @initialize(config=with_states(configurations(page_sizes=PAGE_SIZES, kinds=("both",) * 10 + ("full", "swa"))))
    def configure(self, config: EngineConfig) -> None:
        self.begin([config])

    @rule(ops=ledger_ops())
    def act(self, ops: tuple[Op, ...]) -> None:
        self.apply_all(ops)
