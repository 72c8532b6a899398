"""Random traffic for the ledgers alone."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine_under_test.config import EngineConfig
from harness.machines.base import Machine
from harness.machines.draws import configurations
from harness.ops import Complete, Drain, Free, Give, Pressure, Take, TakeOver

PARTS = ("all", "windowed", "rest")


class LedgerTraffic(Machine):
    """A rule per op; owners are few, so that they meet."""

    machine = "ledger"

    @initialize(config=configurations())
    def configure(self, config: EngineConfig) -> None:
        self.begin([config])

    @rule(owner=st.integers(0, 3), count=st.integers(1, 12))
    def take(self, owner: int, count: int) -> None:
        self.apply(Take(owner=owner, count=count))

    @rule(owner=st.integers(0, 3), to=st.integers(0, 3), count=st.integers(1, 6))
    def give(self, owner: int, to: int, count: int) -> None:
        self.apply(Give(owner=owner, to=to, count=count))

    @rule(owner=st.integers(0, 3), count=st.integers(1, 12), part=st.sampled_from(PARTS), fenced=st.booleans())
    def free(self, owner: int, count: int, part: str, fenced: bool) -> None:
        self.apply(Free(owner=owner, count=count, part=part, fenced=fenced))

    @rule(owner=st.integers(0, 3), giver=st.integers(0, 3), count=st.integers(1, 4))
    def take_over(self, owner: int, giver: int, count: int) -> None:
        self.apply(TakeOver(owner=owner, giver=giver, count=count))

    @rule()
    def complete(self) -> None:
        self.apply(Complete())

    @rule(pool=st.integers(0, 1), pages=st.sampled_from((0, 1, 3, 10)))
    def pressure(self, pool: int, pages: int) -> None:
        self.apply(Pressure(pool=pool, pages=pages))

    @rule(coin=st.integers(0, 7))
    def drain(self, coin: int) -> None:
        self.apply(Drain() if coin == 7 else Complete())
