"""swarden engines try: a release judged by an older one, with random traffic and with the known op-logs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from swarden.harness.commands.console import ERR
from swarden.harness.commands.events import EventLines
from swarden.harness.commands.gate import judged_by_base
from swarden.harness.commands.gate_page import GatePage, KnownLogs
from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.nightly.archive import Archive
from swarden.harness.nightly.replaying import logs_of
from swarden.harness.report.wording import counted
from swarden.harness.search.campaign import Plan
from swarden.harness.search.endings import STEP_SECONDS, end_on
from swarden.harness.search.workers import WorkerGroup


def tried(target: ReleasedTarget[Any], plan: Plan, older: str, archive: Path | None) -> GatePage:
    """The page of a release beside an older one; an `archive` has further op-logs."""
    gate, why_broken = judged_by_base(plan, older, EventLines(None))
    ends: list[Mapping[str, str]] = [{}, {}]
    if gate.head.result.tallies.runs and not gate.head.is_interrupted:
        logs = _known_logs(target, archive)
        ends = [_ends_on(engine, logs) for engine in (older, plan.engine)]
    return GatePage(target, gate, why_broken, logs=KnownLogs(*ends))


def _ends_on(engine: str, logs: Mapping[str, Path]) -> Mapping[str, str]:
    ERR.print(f"{engine}: {counted(len(logs), 'known op-log')} to replay", markup=False)
    ends = {}
    with WorkerGroup(1, None, hang_seconds=STEP_SECONDS) as group:
        for label, path in logs.items():
            try:
                ends[label] = end_on(group, engine, load_log(path, engine=engine))
            except UsageError as error:
                ends[label] = str(error)
    return ends


def _known_logs(target: ReleasedTarget[Any], archive: Path | None) -> dict[str, Path]:
    """The op-logs of the known bugs of a target, and of the findings of an archive."""
    of_bugs = {path.name: path for bug in target.known_bugs().values() for path in bug.oplogs}
    if archive is None:
        return of_bugs
    errors: list[str] = []
    found = {one.name: logs_of(one)[0] for one in Archive(archive).findings(errors) if one.engine == target.name}
    for error in errors:
        ERR.print(error, markup=False)
    return of_bugs | found
