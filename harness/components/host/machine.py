"""Random traffic for the host tier alone."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.components.configurations import configurations, with_states
from swarden.harness.core.ops import (
    Ack,
    Drain,
    Evict,
    Fetch,
    Flush,
    Heal,
    Inject,
    Insert,
    Lock,
    Op,
    Pressure,
    Recipe,
    Unlock,
)
from swarden.harness.search.draws import options, ordinals, rarely, recipes
from swarden.harness.search.machine import Machine

KINDS = (
    *("insert",) * 8,
    *("visit",) * 4,
    *("return",) * 6,
    *("evict",) * 4,
    *("unlock",) * 3,
    "pressure",
    "trouble",
    "trouble",
    "flush",
)
FAULTS = ("host.fails", "host.torn", "host.slow", "host.silent")


@st.composite
def returns(draw: st.DrawFn) -> tuple[Op, ...]:
    """A prompt is requested again after its device pages were evicted, and its host copies are loaded."""
    recipe = Recipe(path=tuple(draw(st.lists(st.integers(0, 1), min_size=3, max_size=5))), stretch=8)  # several pages
    evict = Evict(need=(256, 256, 256))
    waits = (Ack(),) * draw(st.integers(0, 1))
    twice = (Insert(recipe=recipe), Insert(recipe=recipe))
    return *twice, Ack(), evict, Fetch(recipe=recipe), *waits, Lock(recipe=recipe), Unlock(receipt=draw(ordinals()))


@st.composite
def host_ops(draw: st.DrawFn) -> tuple[Op, ...]:
    """Ops on prefixes that mostly share their beginning; most prefixes have a host copy."""
    match draw(options(*KINDS)):
        case "insert":
            namespace = draw(rarely(st.just(1)))
            return (Insert(recipe=draw(recipes()), namespace=namespace, dead=draw(st.integers(0, 6))),)
        case "visit":
            recipe = draw(recipes())
            return Insert(recipe=recipe), Lock(recipe=recipe)
        case "return":
            return draw(returns())
        case "evict":
            return (Evict(need=(draw(st.integers(1, 8)), draw(st.integers(0, 8)), draw(st.integers(0, 4)))),)
        case "unlock":  # two, so that the locks do not accumulate
            return Unlock(receipt=draw(ordinals())), Unlock(receipt=draw(ordinals()))
        case "pressure":
            return (Pressure(pool=draw(st.integers(0, 2)), pages=draw(options(0, 1, 3))),)
        case "trouble":
            fault, skip, count = draw(options(*FAULTS)), draw(st.integers(0, 2)), draw(options(1, 3))
            ops, begun = draw(returns()), draw(options(4, 4, 4, 0))  # mostly after every page was backed up
            return *ops[:begun], Inject(fault=fault, skip=skip, count=count), *ops[begun:], Heal()
        case _:
            return Insert(recipe=draw(recipes())), draw(options(Flush(), Drain()))


class HostTraffic(Machine):
    """One rule that draws ops of all kinds in each run, because without insertions every other op is a no-op."""

    machine = "host"

    @initialize(
        config=with_states(
            configurations(
                page_sizes=(4, 1, 2), kinds=("both",) * 10 + ("full", "swa"), sharing=(True,), host_ratios=(2, 0.5, 1)
            )
        )
    )
    def configure(self, config: EngineConfig) -> None:
        self.begin([replace(config, load_back_threshold=1)])

    @rule(ops=host_ops())
    def act(self, ops: tuple[Op, ...]) -> None:
        self.apply_all(ops)
