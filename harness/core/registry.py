"""Which systems the harness can drive, by the names that op-logs and the command line use."""

from collections.abc import Callable, Sequence
from functools import partial

from engine_under_test.config import EngineConfig
from harness.components.host.system import HostSystem
from harness.components.ledger.system import LedgerSystem
from harness.components.tree.system import TreeSystem
from harness.core.driver import EVERYTHING, Driver, Kept
from harness.core.system import EngineSystem, System
from harness.engines.own.adapter import SwardenEngine
from harness.engines.own.pair_system import side_systems
from invariants.transition import Transition


def _own_engine(config: EngineConfig, model: str = "") -> System:
    return EngineSystem(SwardenEngine(config, model))


RUN_MODELS = ("engine",)  # the machines whose systems can run a model; parts of an engine compute nothing
MACHINES: dict[str, Callable[[EngineConfig], System]] = {
    "engine": _own_engine,
    "ledger": LedgerSystem,
    "tree": TreeSystem,
    "host": HostSystem,
    "pd": _own_engine,
}
PAIRS = {"pd": side_systems}  # the machines that drive engines which are linked
ROLES_OF = {"pd": ("prefill", "decode")}  # what the engines of a machine are, where that is not both


ENGINES = ("swarden",)  # what `engine` can stand for


def build_driver(
    machine: str,
    configs: Sequence[EngineConfig],
    *,
    model: str = "",
    keep: Kept = EVERYTHING,
    tell: Callable[[Transition], None] | None = None,
) -> Driver:
    """A driver over fresh systems, one per configuration; those of RUN_MODELS with a `model`, a name of MODELS."""
    assert not model or machine in RUN_MODELS, f"machine {machine} runs no model, and {model} is asked for"
    if machine in PAIRS:
        return Driver(PAIRS[machine](configs), keep=keep, tell=tell)
    build = partial(_own_engine, model=model) if model else MACHINES[machine]
    return Driver([build(config) for config in configs], keep=keep, tell=tell)
