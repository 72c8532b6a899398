"""How logs of findings end on another release of their engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.releases import parsed
from swarden.harness.core.replay import Replays, Verdict
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
    return end_of(replays)


def end_of(replays: Replays, same: Sequence[str] = ()) -> str:
    """How a log has ended: PASSES, FAILS as it expects, or OTHERWISE with the names of another failure.

    `same` has further names of the failure that is expected.
    """
    if replays.verdict is Verdict.CHANGED and replays.fingerprints[0] not in same:
        return f"{OTHERWISE}{', '.join(replays.fingerprints)}"
    return PASSES if replays.verdict is Verdict.FIXED else FAILS


def base_of(target: Target) -> str:
    """The installed release that is nearest to a checkout, not newer if there is one; "" for a release."""
    if target.releases is None or target.sources is None or target.sources.is_release:
        return ""
    installed = target.releases.installed()
    try:
        older = [one for one in installed if parsed(one) <= parsed(target.version())]
    except UsageError:  # its version has another form
        older = installed
    return (older or installed[:1] or [""])[-1]


def beside(findings: list[Finding], version: str, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Give each finding of a checkout how its log ends on a release, in place; those that pass there come first."""
    ranks = {f"{PASSES} on {version}": 0, f"{FAILS} on {version}, too": 2}
    with WorkerGroup(1, None, hang_seconds=STEP_SECONDS) as group:
        for index, finding in enumerate(findings):
            if finding.path is not None and not finding.died and not is_stopped():
                findings[index] = replace(finding, on_base=_on_base(group, finding, finding.path, version))
            yield
    findings.sort(key=lambda one: ranks.get(one.on_base, 1))


def _on_base(group: WorkerGroup, finding: Finding, path: Path, version: str) -> str:
    end = end_on(group, f"{finding.log.header.engine}=={version}", path, finding.fingerprint)
    return f"{FAILS} on {version}, too" if end == FAILS else f"{end} on {version}"
