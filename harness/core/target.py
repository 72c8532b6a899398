"""The interface of a target: everything that the harness knows of a kind of engine.

An engine's package registers an instance in the entry-point group `swarden.engines`, so swarden itself needs no change.
Configurations are opaque: outside of the target they are JSON objects.
"""

import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import KnownBug, folders_of_bugs, known_bugs_in
from swarden.harness.core.mutant import Mutant
from swarden.harness.core.oplog import ENGINE as ENGINE
from swarden.harness.core.ops import ENGINE_OPS, Op, Pause, PauseMode
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import EnginePort
from swarden.harness.core.program import Program
from swarden.harness.core.releases import LINKED, InEnvironment, Releases, in_environment
from swarden.harness.core.sources import hash_of_packages, version_of_package
from swarden.harness.core.system import EngineSystem, System
from swarden.harness.core.target_fault import blamed_on
from swarden.invariants.events import Fired
from swarden.invariants.transition import Transition

ValueT = TypeVar("ValueT")
Configs = list[dict[str, Any]]  # in JSON form

_prepared: list["Target"] = []
# The machines that drive a prefill and a decode engine, ranks of one engine that serve each request together, both,
# and ranks of which one serves a request; ENGINE drives a whole engine.
PAIR, RANKS, RANKS_OF_PAIR, DATA_RANKS = "pd", "tp", "pd-tp", "dp"
# Laws that do not apply to data-parallel ranks, of which each has requests of its own.
EQUAL = ("requests", "trees", "free_units")
EQUAL_RANKS = ("ranks_compute_equal_batches", *[f"ranks_have_equal_{part}" for part in EQUAL])
TIMEOUT_MS = 100  # the request timeout that configurations have, and by which traffic advances the clock


class Pool(NamedTuple):
    """A KV pool for generic traffic."""

    name: str
    units: int  # usable
    window: int | None = None  # tokens that a position reads, itself included; None: the whole prefix
    has_states: bool = False  # recurrent ones, of which a request has few


class Tier(NamedTuple):
    """A place that has KV beside the device."""

    slow: str  # the fault by which copies to or from it are late
    failing: Sequence[str] = ()  # the faults of failures
    emptied_by: Op | None = None  # drops idle prompts from the device and from the tiers before this one


class Shape(NamedTuple):
    """The part of a configuration that generic traffic needs; lengths are in tokens."""

    page_size: int = 1
    pools: Sequence[Pool] = ()
    chunk_len: int | None = None
    max_running_requests: int = 8
    max_context_len: int = 384
    lookahead_len: int = 0
    sessions_rewind: bool = True  # false: the prompt of a turn must begin with all tokens of its session
    turns_have_grammars: bool = False  # if a grammar is among the options
    unused: Collection[str] = ()  # ops and faults of the target that an engine of this configuration does not have
    uses_before_backup: int = 0  # of a prefix, until it is copied to the host; 0 without a host tier
    tiers: Sequence[Tier] = ()  # that have KV beside the device
    serves_prompts_alone: bool = False  # a request may ask for no token
    samples: bool = False  # a request may have a seed
    options: Sequence[str] = ()  # of a Submit op: adapter, uncached, prompt_logprobs, sequences, grammar
    outputs: Sequence[int] = ()  # further lengths of answers beside those of a load, such as one beyond the window
    ranks: int = 1  # that run the engine together
    differing: Collection[str] = ()  # faults that may come to one rank alone


class Launch(NamedTuple):
    """The settings of a server's launch line, in JSON form, and the machine that drives such an engine; or no line."""

    text: str = ""
    machine: str | None = None
    settings: Mapping[str, Any] = {}
    not_driven: Sequence[str] = ()  # options of the line that change nothing here


class Draw(Protocol):
    """The source of random choices for a target's configuration; the first option is the simplest one."""

    def one_of(self, options: Sequence[ValueT]) -> ValueT: ...

    def integer(self, low: int, high: int) -> int: ...


class Watch(Protocol):
    """Observes one run, and records the probes that it has reached and how often each fault fired."""

    @property
    def seen(self) -> set[str]: ...

    @property
    def fired(self) -> Mapping[str, int]: ...

    def look(self, change: Transition) -> None: ...


@dataclass(frozen=True)
class MachineSpec:
    """A way to drive a target: the ops of its systems, and the models and roles of its engines."""

    ops: Sequence[type[Op]] = ENGINE_OPS
    models: Sequence[str] = ()  # that its engines can run instead of the stand-in
    roles: Sequence[str] = ()  # of each engine, if there are several
    probes: Mapping[str, str] = field(default_factory=dict)  # that its runs must reach, with their meanings
    traffic: Callable[[], type[Any]] | None = None  # imports its Hypothesis machine; None: that of each engine or pair
    batches: int = 1  # in each rotation through the machines of the target; 0: only where a campaign names it
    own_faults: Collection[str] = ()  # those of no other machine
    pauses: Sequence[PauseMode] = (PauseMode.RETRACT,)  # the modes of its pauses
    pausable_engines: Sequence[int] = (0, 1)  # by ordinal
    one_step_of: int = 1  # traffic makes one step of so many
    draws_of_rule: Sequence[int] = (1,)  # one call of the rule of traffic draws so many kinds of ops as one of these

    def refusal(self, op: Op) -> str:
        """Why a log of this machine cannot have this op; "" if it can."""
        if type(op) not in self.ops:
            return f"has no such op, it knows {', '.join([str(kind.__struct_config__.tag) for kind in self.ops])}"
        if isinstance(op, Pause) and op.mode not in self.pauses:
            return f"has no mode {op.mode}, it knows {', '.join(self.pauses)}"
        return ""


class Target(Protocol):
    """A kind of engine.

    A target must have a `name`, the `code`, which locates its errors and events, `build`, and `config` or `configs`.
    All else it may have.  The default says that it has nothing of the kind: it is empty, or None, or a UsageError that
    names the member to define.
    """

    name: str
    code: EngineCode

    @abstractmethod
    def build(self, config: Any) -> EnginePort:
        """A new engine behind its port."""

    def config(self, draw: Draw) -> Any:
        """A random configuration."""
        raise UsageError(f"{self.name}: its target draws no configuration; define config or configs there")

    def configs(self, draw: Draw, machine: str, load: str) -> Sequence[Any]:
        """Random configurations of the engines of a machine; `load` is the name of a load of `search.traffic.loads`.

        A target with several machines, or with settings that suit a load, overrides this.
        """
        return [self.config(draw)]

    # --- what it may have

    machines: Mapping[str, MachineSpec] = {ENGINE: MachineSpec()}
    faults: Mapping[str, str] = {}  # that its runs can have, each with its effect
    contracts: frozenset[str] = frozenset()  # the modules of `invariants.contracts` that it promises to satisfy
    defaults: Mapping[str, Any] = {}  # its default configuration in JSON form, to which the shrinker sets settings
    main_settings: Sequence[str] = ()  # shown in a story even where they have their default
    coupled: Sequence[Sequence[str]] = ()  # groups of settings that the shrinker sets together
    kept: Sequence[str] = ()  # settings that the shrinker does not change
    of_one_side: Sequence[str] = ()  # settings that are not for both sides of a pair
    servers: Sequence[str] = ()  # the programs of launch lines, such as "vllm serve"
    needs: Mapping[str, str] = {}  # by setting (on, unless it is a text): what a server has with it and not without
    large_pools: Mapping[str, int] = {}  # by setting, the sizes of a server's pools, which a draft of a known bug tries
    releases: Releases | None = None  # what `swarden engines` installs, if it can drive several releases
    catalog: Sequence[Mutant] = ()  # its mutants
    is_repeatable: bool = True  # the same ops give the same run; else no log has digests, and a failure has a rate
    calm: Mapping[str, Any] = {}  # with these it depends least on time; a failure is shrunk with them, if it comes then

    @property
    def settable(self) -> Collection[str]:
        """The settings that a campaign may fix."""
        return simplified(self)

    def encode(self, config: Any) -> dict[str, Any]:
        """The JSON form of a configuration."""
        return dict(config)

    def decode(self, mapping: Mapping[str, Any]) -> Any:
        """The configuration of a JSON object, with defaults for what it lacks; raises InvalidConfig for a bad one."""
        return {**self.defaults, **mapping}

    def shape(self, config: Any) -> Shape:
        """The part of a configuration that generic traffic needs."""
        return Shape()

    def config_of(self, shape: Shape) -> Any:
        """A configuration of this shape with defaults for the rest, for recorded traffic and benchmarks."""
        raise UsageError(f"{self.name}: its target makes no configuration of a given shape; define config_of there")

    def role(self, config: Any) -> str:
        """The role of an engine with this configuration, such as "prefill"; "" for an engine that serves alone."""
        return ""

    def check_linked(self, configs: Sequence[Any]) -> None:
        """Raise InvalidConfig if engines of these configurations cannot be linked; called if there are several."""
        return

    def launched(self, text: str) -> Launch:
        """What a server with this launch line has; raises UsageError for a line that cannot be understood or driven."""
        raise UsageError(f"{self.name}: its target understands no launch line; define launched there")

    def at(self, version: str) -> "Target | None":
        """This target with that version of its engine; None if that version is not installed."""
        return self if version == self.version() else None

    def version(self) -> str:
        """The version of the distribution that contains the engine's package."""
        return version_of_package(self.code.package)

    def source_hash(self) -> str:
        """The hash of all sources that can change a run: the engine's, the adapter's and swarden's."""
        module = type(self).__module__
        adapter = module.rpartition(".")[0] or module
        return hash_of_packages((self.code.package, adapter, "swarden.harness", "swarden.invariants"))

    @property
    def sources(self) -> InEnvironment | None:
        """The package of the engine's code; None if it is not installed."""
        return in_environment(self.code.package) if self.code.package else None

    def suited(self, config: Any, model: str) -> Any:
        """A random configuration without what a model cannot serve; raises InvalidConfig if nothing is left."""
        return config

    @property
    def process(self) -> str:
        """A name for the code that this target loads, of which a process can load only one; "": beside any other."""
        return ""

    def check_environment(self) -> None:
        """Raise UsageError if no run can start here, before any worker is started; must be cheap."""
        return

    def prepare_process(self) -> None:
        """Prepare a process that drives this engine; called once, before its first run."""
        return

    def systems(self, machine: str, configs: Sequence[Any], model: str) -> Sequence[System]:
        """New systems for a machine, one for each configuration."""
        return [EngineSystem(self.build(config)) for config in configs]

    def watch(self) -> Watch:
        """An observer for the probes of one run."""
        return FaultWatch()

    def live(self, engine: Any) -> Any:
        """The `Live` (harness/strict/live.py) of a running engine; raises UsageError for one that no check knows."""
        raise UsageError(f"{self.name}: its target describes no running engine; define live there")

    def mutant(self, name: str) -> Mutant:
        """The mutant with that id; raises UsageError if there is none."""
        mutants = {mutant.id: mutant for mutant in self.catalog}
        if name not in mutants:
            raise UsageError(f"mutant {name}: {self.name} has none of this id; see 'swarden mutants'")
        return mutants[name]

    def known_bugs(self) -> Mapping[str, KnownBug]:
        """The known bugs of its releases, by name, from the folders of its class and its bases."""
        modules = [sys.modules[kind.__module__] for kind in reversed(type(self).__mro__)]
        files = dict.fromkeys(getattr(module, "__file__", None) for module in modules)
        folders = [folder for file in files if file is not None for folder in folders_of_bugs(Path(file).parent)]
        return {name: bug for folder in folders for name, bug in known_bugs_in(folder).items()}

    def avoidances(self, configs: Configs, fingerprints: Iterable[str]) -> Mapping[str, AbstractContextManager[None]]:
        """By known bug with one of these fingerprints, a context in which engines of `configs` do not have it."""
        return {}

    def behind_port(self, configs: Configs) -> tuple[str, Configs] | None:
        """The release, as "NAME==VERSION", that a server runs, and the configurations that are as its own.

        Raises UsageError if it is not installed, or cannot have them.
        """
        return None

    def programs(self) -> Mapping[str, Callable[[Any], Program]]:
        """The forms in which an op-log of this engine can be a program of its package alone, and what makes each.

        The function raises NoProgram for an op-log that no program can show, and UsageError for one that does not fail.
        """
        return {}


def simplified(target: Target) -> dict[str, Any]:
    """The defaults of the settings that the shrinker may simplify."""
    return {name: value for name, value in target.defaults.items() if name not in target.kept}


def install_command(target: Target, version: str) -> str:
    """The command that installs this version of the engine; "" if swarden cannot install it."""
    is_checkout = LINKED.fullmatch(version) is not None
    can_install = target.releases is not None and (is_checkout or target.releases.has_name(version))
    source = " --from DIR" if is_checkout else ""
    return f"swarden engines install {target.name}=={version}{source}" if can_install else ""


def decode_all(target: Target, mappings: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
    """The configurations of engines that run together; raises InvalidConfig also if these cannot be linked."""
    configs = [target.decode(mapping) for mapping in mappings]
    if len(configs) > 1:
        target.check_linked(configs)
    return configs


def prepare(target: Target) -> None:
    """Let a target prepare this process, once."""
    if not any(other is target for other in _prepared):
        with blamed_on(target.name, "prepare_process"):
            target.prepare_process()
        _prepared.append(target)


class FaultWatch:
    """Counts how often each fault fired; has no probes."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.fired: dict[str, int] = {}

    def look(self, change: Transition) -> None:
        for event in change.events_of(Fired):
            self.fired[event.fault] = self.fired.get(event.fault, 0) + 1
