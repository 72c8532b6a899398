"""The crossing: which fix of a known bug cures an op-log of another bug, or of a planted mutant.

`python -m tests.engines.crossing ENGINE==VERSION` lists them by op-log in `ENGINE/crossing.json`, each with the reason
that a person has written there after reading the engine's source.  The test of the crossing fails without one.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from swarden.harness.core.admission import load_log
from swarden.harness.core.changes import patch_of
from swarden.harness.core.driver import Failure
from swarden.harness.core.known_bug import EMBARGO, PRIVATE
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import run_log
from swarden.harness.core.target import Target
from swarden.harness.search.cures import FixTester
from swarden.harness.search.verification import Verifier
from tests.engines.some_findings import op_logs_of

FOLDER = Path(__file__).parent


def reasons_in(engine: str) -> dict[str, dict[str, str]]:
    """By op-log, the foreign fixes that cure it, with their reasons."""
    reasons: dict[str, dict[str, str]] = {}
    for file in files_of(engine):
        for log, of_log in json.loads(file.read_text()).items() if file.exists() else ():
            reasons[log] = reasons.get(log, {}) | of_log
    return reasons


def files_of(engine: str) -> list[Path]:
    """The file of an engine, then that of its bugs under embargo, if they are known."""
    embargo = os.environ.get(EMBARGO)
    return [folder / engine / "crossing.json" for folder in (FOLDER, *([Path(embargo)] if embargo else []))]


def logs_of(engine: str) -> dict[Path, str]:
    """The op-logs that fail on a release, each with the name of its bug; that of a mutant has none."""
    name, _, version = engine.partition("==")
    of_bugs = {shown.path: shown.bug.name for shown in op_logs_of(name) if shown.span.has(version)}
    return of_bugs | dict.fromkeys(sorted(FOLDER.glob(f"{name}/mutants/*.oplog")), "")


def foreign_causes(path: Path, engine: str, own: str) -> set[str]:
    """The bugs of which a campaign would judge the failure of an op-log to be, without the fix of its own bug."""
    with _failed(path, engine, own) as (target, log, failure):
        return {*Verifier(target, (*log.header.fixes, own)).cause_of(failure, log).bugs}


def foreign_cures(path: Path, engine: str, own: str) -> tuple[set[str], int]:
    """The fixes of other bugs that cure an op-log, each alone, and the number of fixes that it reaches."""
    with _failed(path, engine, own) as (target, log, failure):
        bugs = [bug for bug in target.known_bugs().values() if bug.name not in log.header.fixes]
        patches = [patch for patch in (patch_of(target, bug) for bug in bugs) if patch is not None]
        tester = FixTester(log, failure, patches, refusing={bug.name for bug in bugs if bug.refuses})
        reached = tester.ending().reached
        return {fix for fix in reached - {own} if tester.cures([fix])}, len(reached)


@contextmanager
def _failed(path: Path, engine: str, own: str) -> Iterator[tuple[Target, OpLog, Failure]]:
    """The target, an op-log and its failure; a mutant is in the code, not in the log, as a bug of the engine is."""
    target = target_of(engine)
    target.prepare_process()
    log = load_log(path, engine=engine)
    log = log.with_header(mutant=None)
    with nullcontext() if own else target.mutant(path.stem).planted():
        failure = run_log(log).failure
        assert failure is not None, f"{path.stem} passes on {engine}"
        yield target, log, failure


def main(engine: str) -> None:
    """Write the files of an engine; reasons that are there stay."""
    name, _, _ = engine.partition("==")
    public, *private = files_of(name)
    secret = {bug.name for bug in target_of(name).known_bugs().values() if bug.verdict == PRIVATE}
    reasons = reasons_in(name)
    listed: dict[Path, dict[str, dict[str, str]]] = {file: {} for file in (public, *private)}
    for path, own in logs_of(engine).items():
        (cures, num_reached), causes = foreign_cures(path, engine, own), foreign_causes(path, engine, own)
        sys.stdout.write(f"{path.stem}: reaches {num_reached} fixes; cured by {cures}, known as {causes}\n")
        sys.stdout.flush()
        for fix in sorted(cures | causes):
            file = private[0] if {own, fix} & secret else public
            listed[file].setdefault(path.stem, {})[fix] = reasons.get(path.stem, {}).get(fix, "")
    for file, of_logs in listed.items():
        file.write_text(json.dumps(of_logs, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
