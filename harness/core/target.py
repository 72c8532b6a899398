"""The contract of a target: everything that the harness knows of a kind of engine.

A package of an engine's maintainers registers an instance in the entry-point group `swarden.engines`; the tree of
swarden is not touched.  Configurations are opaque: outside of the target they are JSON objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from importlib.metadata import version as version_of
from typing import Any, NamedTuple, Protocol, TypeVar

from harness.core.errors import UsageError
from harness.core.mutant import Mutant
from harness.core.ops import ENGINE_OPS, Op
from harness.core.origins import EngineCode
from harness.core.port import EnginePort
from harness.core.sources import hash_of_packages
from harness.core.system import EngineSystem, System
from invariants.events import Fired
from invariants.transition import Transition

ValueT = TypeVar("ValueT")

ENGINE = "engine"  # the machine that drives one whole engine


class Pool(NamedTuple):
    """A KV pool as generic traffic sees it: `units` usable units, of which a request reads a `window` of tokens.

    None: it reads the whole prefix.
    """

    name: str
    units: int
    window: int | None = None


class Shape(NamedTuple):
    """What generic traffic has to know of a configuration; lengths are in tokens."""

    page_size: int = 1
    pools: Sequence[Pool] = ()
    chunk_len: int | None = None
    max_running_requests: int = 8
    max_context_len: int = 384
    lookahead_len: int = 0


class Draw(Protocol):
    """Where a target's configuration gets its random choices from; the first option is the most boring one."""

    def one_of(self, options: Sequence[ValueT]) -> ValueT: ...

    def integer(self, low: int, high: int) -> int: ...


class Watch(Protocol):
    """Follows one run, and notes which probes it has seen and how often each fault fired."""

    @property
    def seen(self) -> set[str]: ...

    @property
    def fired(self) -> Mapping[str, int]: ...

    def look(self, change: Transition) -> None: ...


@dataclass(frozen=True)
class MachineSpec:
    """A way to drive a target: the ops that its systems know, and what its engines can be.

    `models` are what its engines can run in the place of the stand-in; `roles` name its engines where there are
    several, one for each.  `probes` are the rare states that its runs must have been in, each with its meaning.
    """

    ops: Sequence[type[Op]] = ENGINE_OPS
    models: Sequence[str] = ()
    roles: Sequence[str] = ()
    probes: Mapping[str, str] = field(default_factory=dict)


class Target(Protocol):
    """A kind of engine.  Errors and events have their place in its `code`.

    `traffic` are the Hypothesis machines that draw its ops, as "module:Class", in the order in which batches go to
    them.  `faults` are those that its runs can have, each with its effect; `contracts` the modules of
    `invariants.contracts` that it promises to keep.  `defaults` is the JSON form of its default configuration; the
    shrinker sets settings to them, those of a `coupled` group together, and leaves `kept` ones alone.
    """

    name: str
    code: EngineCode
    machines: Mapping[str, MachineSpec] = {ENGINE: MachineSpec()}
    traffic: Sequence[str] = ("harness.search.traffic:EngineTraffic",)
    faults: Mapping[str, str] = {}
    contracts: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = {}
    coupled: Sequence[Sequence[str]] = ()
    kept: Sequence[str] = ()

    def version(self) -> str:
        """The version of the distribution that the package comes from."""
        distributions = packages_distributions().get(self.code.package, ())
        return version_of(distributions[0]) if distributions else ""

    def source_hash(self) -> str:
        """A hash over the sources that decide how a run goes: the engine's, the adapter's and swarden's."""
        return hash_of_packages((self.code.package, type(self).__module__.partition(".")[0], "harness", "invariants"))

    def config(self, draw: Draw) -> Any:
        """A configuration at random, for generic traffic."""
        raise NotImplementedError(f"{self.name} draws its configurations in its own traffic")

    @property
    def simplified(self) -> dict[str, Any]:
        """The defaults of the settings that the shrinker may simplify."""
        return {name: value for name, value in self.defaults.items() if name not in self.kept}

    def encode(self, config: Any) -> dict[str, Any]:
        """The JSON form of a configuration."""
        return dict(config)

    def decode(self, mapping: Mapping[str, Any]) -> Any:
        """The configuration of a JSON object; raises InvalidConfig where an engine cannot be built from it.

        Settings that are left out are at their defaults.
        """
        return {**self.defaults, **mapping}

    def shape(self, config: Any) -> Shape:
        """What generic traffic has to know of a configuration."""
        return Shape()

    def role(self, config: Any) -> str:
        """The role of an engine of this configuration, as "prefill"; "" for an engine that serves alone."""
        return ""

    def build(self, config: Any) -> EnginePort:
        """A fresh engine behind its port."""

    def systems(self, machine: str, configs: Sequence[Any], model: str) -> Sequence[System]:
        """Fresh systems for a machine, one for each configuration."""
        return [EngineSystem(self.build(config)) for config in configs]

    def prepare_process(self) -> None:
        """Called once in a process before it drives this engine for long."""

    def watch(self) -> Watch:
        """The probes of one run."""
        return FaultWatch()

    def mutants(self) -> Sequence[Mutant]:
        """The bugs of this engine that swarden knows of."""
        return ()

    def mutant(self, name: str) -> Mutant:
        """The mutant of that id; raises UsageError where there is none."""
        known = {one.id: one for one in self.mutants()}
        if name not in known:
            raise UsageError(f"mutant {name}: {self.name} has none of this id; see 'swarden mutants'")
        return known[name]


class FaultWatch:
    """No probes: only how often each fault fired."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.fired: dict[str, int] = {}

    def look(self, change: Transition) -> None:
        for event in change.events_of(Fired):
            self.fired[event.fault] = self.fired.get(event.fault, 0) + 1
