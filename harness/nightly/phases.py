"""The phases of a night in their order. A further kind of search, such as differential twins, is one more entry."""

from swarden.harness.nightly.canary import about_canary, canary
from swarden.harness.nightly.night import NightPhase
from swarden.harness.nightly.replaying import replay
from swarden.harness.nightly.reports import report
from swarden.harness.nightly.settling import settle_findings
from swarden.harness.nightly.traffic import about_traffic, traffic

PHASES = (
    NightPhase("replay", replay, lambda _: "the op-logs of the archive"),
    NightPhase("canary", canary, about_canary),
    NightPhase("traffic", traffic, about_traffic),
    NightPhase("settle", settle_findings, lambda _: "failures are shrunk, and run again in fresh processes"),
    NightPhase("report", report, lambda _: "the verdict"),
)
