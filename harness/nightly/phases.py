"""The phases of a night in their order. A further kind of search, such as differential twins, is one more entry."""

from swarden.harness.nightly.canary import canary
from swarden.harness.nightly.night import NightPhase
from swarden.harness.nightly.replaying import replay
from swarden.harness.nightly.reports import report
from swarden.harness.nightly.settling import settle_findings
from swarden.harness.nightly.traffic import traffic

PHASES = (
    NightPhase("replay", replay),
    NightPhase("canary", canary),
    NightPhase("traffic", traffic),
    NightPhase("settle", settle_findings),
    NightPhase("report", report),
)
