"""The phases of a night in their order. A further kind of search is one more entry."""

from swarden.harness.nightly.canary import canary
from swarden.harness.nightly.night import NightPhase
from swarden.harness.nightly.replaying import replay
from swarden.harness.nightly.reports import report
from swarden.harness.nightly.settling import settle_findings
from swarden.harness.nightly.traffic import traffic

PHASES = (
    NightPhase("replay", replay, "the op-logs of the archive"),
    NightPhase("canary", canary, "a planted bug of each engine is searched for, for at most a quarter of --minutes"),
    NightPhase("traffic", traffic, "random traffic"),
    NightPhase("settle", settle_findings, "new failures are shrunk, and run again in fresh processes"),
    NightPhase("report", report, "the verdict"),
)
