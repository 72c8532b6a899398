"""Random traffic for the prefix cache alone, against a naive model."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.components.configurations import configurations, with_states
from swarden.harness.core.ops import Drain, Evict, Flush, Insert, Lock, Op, Pressure, Recipe, Slide, Unlock
from swarden.harness.search.draws import options, ordinals, rarely, recipes
from swarden.harness.search.machine import Machine

KINDS = (*("insert",) * 12, *("visit",) * 4, *("lock",) * 3, *("unlock",) * 6, *("evict",) * 2, "pressure", "flush")
ONE_POOL_RARELY = ("both",) * 10 + ("full", "swa")
PAGE_SIZES = (4, 1, 2)  # so that most recipes have whole pages


@st.composite
def visits(draw: st.DrawFn) -> tuple[Op, ...]:
    """A prompt is inserted, a reader of a longer prompt locks it, and the window of some reader slides."""
    recipe = draw(recipes())
    longer = Recipe(path=(*recipe.path, 0, 0), stretch=max(4, recipe.stretch))
    continuing = Recipe(path=(*longer.path, 0), stretch=longer.stretch, cut=draw(st.integers(0, 5)))
    slide = Slide(receipt=draw(ordinals()), page=draw(st.integers(0, 2)))
    return Insert(recipe=longer), Lock(recipe=continuing), slide


@st.composite
def tree_ops(draw: st.DrawFn) -> tuple[Op, ...]:
    """Ops on prefixes that mostly share their beginning."""
    match draw(options(*KINDS)):
        case "insert":
            return (Insert(recipe=draw(recipes()), namespace=_namespace(draw), dead=draw(st.integers(0, 6))),)
        case "visit":
            return draw(visits())
        case "lock":
            return (Lock(recipe=draw(recipes()), namespace=_namespace(draw)),)
        case "unlock":
            return (Unlock(receipt=draw(ordinals())),)
        case "evict":
            return (Evict(need=(draw(st.integers(1, 8)), draw(st.integers(0, 8)), draw(st.integers(0, 4)))),)
        case "pressure":
            return (Pressure(pool=draw(st.integers(0, 2)), pages=draw(options(0, 1, 3))),)
        case _:
            return (draw(options(Flush(), Flush(), Drain())),)


def _namespace(draw: st.DrawFn) -> int:
    return draw(rarely(st.just(1)))


class TreeTraffic(Machine):
    """One rule that draws ops of all kinds in each run, because without insertions every other op is a no-op."""

    machine = "tree"

    @initialize(config=with_states(configurations(page_sizes=PAGE_SIZES, kinds=ONE_POOL_RARELY, sharing=(True,))))
    def configure(self, config: EngineConfig) -> None:
        self.begin([config])

    @rule(ops=tree_ops())
    def act(self, ops: tuple[Op, ...]) -> None:
        self.apply_all(ops)
