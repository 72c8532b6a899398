"""Random traffic for the prefix cache alone, against a naive model."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine_under_test.config import EngineConfig
from harness.machines.base import Machine
from harness.machines.draws import configurations, ordinals, rarely, recipes
from harness.ops import Drain, Evict, Flush, Insert, Lock, Pressure, Recipe, Slide, Unlock


class TreeTraffic(Machine):
    """A rule per op."""

    machine = "tree"

    @initialize(config=configurations())
    def configure(self, config: EngineConfig) -> None:
        self.begin([config])

    @rule(recipe=recipes(), namespace=rarely(st.integers(1, 2)), dead=st.integers(0, 6))
    def insert(self, recipe: Recipe, namespace: int, dead: int) -> None:
        self.apply(Insert(recipe=recipe, namespace=namespace, dead=dead))

    @rule(recipe=recipes(), namespace=rarely(st.integers(1, 2)))
    def lock(self, recipe: Recipe, namespace: int) -> None:
        self.apply(Lock(recipe=recipe, namespace=namespace))

    @rule(receipt=ordinals())
    def unlock(self, receipt: int) -> None:
        self.apply(Unlock(receipt=receipt))

    @rule(receipt=ordinals(), page=st.integers(0, 12))
    def slide(self, receipt: int, page: int) -> None:
        self.apply(Slide(receipt=receipt, page=page))

    @rule(need=st.tuples(st.integers(0, 8), st.integers(0, 8)))
    def evict(self, need: tuple[int, int]) -> None:
        self.apply(Evict(need=need))

    @rule(pool=st.integers(0, 1), pages=st.sampled_from((0, 1, 3, 10)))
    def pressure(self, pool: int, pages: int) -> None:
        self.apply(Pressure(pool=pool, pages=pages))

    @rule(coin=st.integers(0, 7))
    def flush_or_drain(self, coin: int) -> None:
        self.apply(Drain() if coin == 7 else Flush())
