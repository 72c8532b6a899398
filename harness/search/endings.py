"""How logs of findings end on another release of their engine."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from swarden.harness.core.admission import parse_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.process import run_to_end
from swarden.harness.core.releases import parsed
from swarden.harness.core.replay import Replays, Verdict
from swarden.harness.core.target import Target
from swarden.harness.search.result import Finding
from swarden.harness.search.workers import WorkerGroup

FAILS, PASSES = "fails", "passes"
OTHERWISE = f"{FAILS} with "  # other fingerprints
STEP_SECONDS = 60.0  # until a replay without an engine step is taken for hung


def ending_on(group: WorkerGroup, engine: str, log: OpLog, names: Sequence[str] = ()) -> Generator[None, None, str]:
    """How a log ends on a release: FAILS, PASSES, OTHERWISE, or why it cannot be run there.

    It is run with its fixes, or without them if they do not fit there.  The failure that is expected has these names;
    without names it is that of the log.
    """
    end, header = "", log.header
    for fixes in dict.fromkeys([header.fixes, ()]):
        own = msgspec.structs.replace(header, fixes=fixes, expected=names[0] if names else header.expected)
        try:
            here = parse_log(OpLog(own, log.ops).to_bytes(), Path("its op-log"), engine=engine)
            return end_of((yield from group.replaying(here, 1)), names)
        except UsageError as error:
            end = str(error)
    return end


def end_on(group: WorkerGroup, engine: str, log: OpLog, names: Sequence[str] = ()) -> str:
    """The same, at once."""
    return run_to_end(ending_on(group, engine, log, names))


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
                end = end_on(group, f"{finding.log.header.engine}=={version}", finding.log, finding.fingerprints)
                on_base = f"{end} on {version}" + (", too" if end == FAILS else "")
                findings[index] = replace(finding, on_base=on_base)
            yield
    findings.sort(key=lambda one: ranks.get(one.on_base, 1))
