"""How logs of findings end on another release of their engine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.releases import parsed
from swarden.harness.core.replay import Verdict
from swarden.harness.core.target import Target
from swarden.harness.search.result import Finding
from swarden.harness.search.workers import WorkerGroup

FAILS, PASSES = "fails", "passes"
OTHERWISE = f"{FAILS} with "  # other fingerprints
STEP_SECONDS = 60.0  # until a replay without an engine step is taken for hung


def end_on(group: WorkerGroup, engine: str, path: Path, expected: str | None = None) -> str:
    """How a log ends on a release: FAILS, PASSES, or why it cannot be run there.

    With `expected`, only a failure with this fingerprint is FAILS, and another one is OTHERWISE.
    """
    try:
        log = OpLog.load(path, engine=engine)
        replays = group.replay(OpLog(log.header, log.ops) if expected is None else log.as_regression(expected), 1)
    except UsageError as error:
        return str(error)
    if expected is not None and replays.verdict is Verdict.CHANGED:
        return f"{OTHERWISE}{', '.join(replays.fingerprints)}"
    return PASSES if replays.verdict is Verdict.FIXED else FAILS


def base_of(target: Target) -> str:
    """The installed release that is nearest to a checkout, not newer if there is one; "" for a release."""
    if target.releases is None or target.sources is None or target.sources.is_release:
        return ""
    installed = target.releases.installed()
    older = [one for one in installed if parsed(one) <= parsed(target.version())]
    return next(iter([*reversed(older), *installed]), "")


def beside(findings: Sequence[Finding], version: str) -> list[Finding]:
    """Findings of a checkout, each with how its log ends on a release; those that pass there come first."""
    with WorkerGroup(1, None, hang_seconds=STEP_SECONDS) as group:
        known = [replace(one, on_base=_on_base(group, one, version)) for one in findings]
    return sorted(known, key=lambda one: one.on_base == f"{FAILS} on {version}, too")


def _on_base(group: WorkerGroup, finding: Finding, version: str) -> str:
    if finding.path is None:
        return ""
    end = end_on(group, f"{finding.log.header.engine}=={version}", finding.path, finding.fingerprint)
    return f"{FAILS} on {version}, too" if end == FAILS else f"{end} on {version}"
