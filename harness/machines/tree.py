"""Random traffic for the prefix cache alone, against a naive model."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine_under_test.config import EngineConfig
from harness.machines.base import Machine
from harness.machines.draws import configurations, ordinals, rarely, recipes
from harness.ops import Drain, Evict, Flush, Insert, Lock, Op, Pressure, Slide, Unlock

KINDS = (*("insert",) * 12, *("lock",) * 8, *("unlock",) * 6, "slide", *("evict",) * 2, "pressure", "rest")
ONE_POOL_RARELY = ("both",) * 10 + ("full", "swa")
PAGE_SIZES = (4, 1, 2)  # so that most recipes have whole pages


@st.composite
def tree_ops(draw: st.DrawFn) -> Op:
    """An op on prefixes that mostly share their beginning."""
    match draw(st.sampled_from(KINDS)):
        case "insert":
            return Insert(recipe=draw(recipes()), namespace=_namespace(draw), dead=draw(st.integers(0, 6)))
        case "lock":
            return Lock(recipe=draw(recipes()), namespace=_namespace(draw))
        case "unlock":
            return Unlock(receipt=draw(ordinals()))
        case "slide":
            return Slide(receipt=draw(ordinals()), page=draw(st.integers(0, 2)))
        case "evict":
            return Evict(need=(draw(st.integers(1, 8)), draw(st.integers(0, 8))))
        case "pressure":
            return Pressure(pool=draw(st.integers(0, 1)), pages=draw(st.sampled_from((0, 0, 1, 3))))
        case _:
            return draw(st.sampled_from((Flush(), Flush(), Drain())))


def _namespace(draw: st.DrawFn) -> int:
    return draw(rarely(st.just(1)))


class TreeTraffic(Machine):
    """One rule that draws an op (no swarm: without insertions nothing else has anything to do)."""

    machine = "tree"

    @initialize(config=configurations(page_sizes=PAGE_SIZES, kinds=ONE_POOL_RARELY, sharing=(True,)))
    def configure(self, config: EngineConfig) -> None:
        self.begin([config])

    @rule(op=tree_ops())
    def act(self, op: Op) -> None:
        self.apply(op)
