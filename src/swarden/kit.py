"""The public names for the target of an engine: port, target, snapshot and events, and the blocks that targets share.

`events`, `view` and `ops` are the modules with the types of events, of the parts of a snapshot, and of operations.
"""

from swarden.harness.core import ops
from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import CLIENT_FAULTS, FaultPlan
from swarden.harness.core.mutant import Hunk, Mutants
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import (
    Abort,
    Accept,
    Drain,
    Flush,
    Heal,
    Inject,
    Pause,
    PauseMode,
    Reset,
    ResetCause,
    Resume,
    Step,
    Submit,
)
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import DraftPort, EnginePort, SessionPort, Streamed, Submission
from swarden.harness.core.releases import Releases
from swarden.harness.core.target import ENGINE, PAIR, Draw, MachineSpec, Pool, Shape, Target
from swarden.harness.kit.adapted import Adapted
from swarden.harness.kit.clients import ClientRequest, Clients
from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.drafts import DraftScript, drafts_after
from swarden.harness.kit.owners import Owners, UnitFacts, Worker, pool_view
from swarden.harness.kit.part import Capability, Part
from swarden.harness.kit.passes import Entry, Pass, Passes, TableEntry
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.kit.released_code import BootedRelease, Feature, ReleasedCode, quiet_import
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, names_of
from swarden.harness.kit.settings import (
    ConfiguredTarget,
    Drawn,
    IfReleaseHas,
    Needs,
    OneOf,
    PartOf,
    PartSettings,
    Settings,
    drawn,
    replaced,
    within,
)
from swarden.harness.kit.stand_ins import Missing, Silent, provide_absent
from swarden.harness.kit.streams import Devices, Stream, StreamCopy, StreamEvent
from swarden.harness.kit.tags import VOCABULARY, ReadTags, TagMemory, TagModel, chain, slots_of, token_after
from swarden.invariants import events, view
from swarden.invariants.kinds import Place
from swarden.invariants.limits import Limits
from swarden.invariants.reference import Reference
from swarden.invariants.reuse import sharing

__all__ = [
    "CLIENT_FAULTS",
    "ENGINE",
    "OF_CLIENTS",
    "OF_OWNERS",
    "OF_PASSES",
    "PAIR",
    "VOCABULARY",
    "Abort",
    "Accept",
    "Adapted",
    "BootedRelease",
    "Capability",
    "ClientRequest",
    "Clients",
    "ConfiguredTarget",
    "Devices",
    "DraftPort",
    "DraftScript",
    "Drain",
    "Draw",
    "Drawn",
    "EngineClock",
    "EngineCode",
    "EnginePort",
    "Entry",
    "EventLog",
    "FaultPlan",
    "Feature",
    "Flush",
    "Header",
    "Heal",
    "Hunk",
    "IfReleaseHas",
    "Inject",
    "InvalidConfig",
    "Limits",
    "MachineSpec",
    "Missing",
    "Mutants",
    "Needs",
    "OneOf",
    "OpLog",
    "Owners",
    "Part",
    "PartOf",
    "PartSettings",
    "Pass",
    "Passes",
    "Pause",
    "PauseMode",
    "Place",
    "Pool",
    "ReadTags",
    "Reference",
    "ReleasedCode",
    "ReleasedTarget",
    "Releases",
    "Reset",
    "ResetCause",
    "Resume",
    "SessionPort",
    "Settings",
    "Shape",
    "Silent",
    "Step",
    "Stream",
    "StreamCopy",
    "StreamEvent",
    "Streamed",
    "Submission",
    "Submit",
    "TableEntry",
    "TagMemory",
    "TagModel",
    "Target",
    "UnitFacts",
    "UsageError",
    "Worker",
    "chain",
    "drafts_after",
    "drawn",
    "events",
    "names_of",
    "ops",
    "pool_view",
    "provide_absent",
    "quiet_import",
    "replaced",
    "sharing",
    "slots_of",
    "token_after",
    "view",
    "within",
]
