"""The phases of a night in their order. A further kind of search, such as differential twins, is one more entry."""

from harness.nightly.canary import canary
from harness.nightly.night import NightPhase
from harness.nightly.replaying import replay
from harness.nightly.reports import report
from harness.nightly.settling import settle_findings
from harness.nightly.traffic import traffic

PHASES = (
    NightPhase("replay", replay),
    NightPhase("canary", canary),
    NightPhase("traffic", traffic),
    NightPhase("settle", settle_findings),
    NightPhase("report", report),
)
