"""The crossing: which fix of a known bug cures an op-log of another bug, or of a planted mutant, in `crossing.json`.

    python -m tests.engines.crossing ENGINE==VERSION [WORD of the names of op-logs]...

The file has, by release and by op-log, the foreign fixes that cure it, each with a reason that somebody writes after
reading the engine's source.  Without a reason, the test of the crossing fails.  A log is known by foreign fixes if the
verifier without the log's own fix gives them as its cause.
"""

import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import run_log
from swarden.harness.search.judge import Judge
from swarden.harness.search.verification import Verifier
from tests.engines.some_findings import op_logs_of

FOLDER = Path(__file__).parent


def data_of(engine: str) -> dict[str, dict[str, str]]:
    """The foreign fixes of each op-log on this release, with their reasons."""
    name, _, version = engine.partition("==")
    file = FOLDER / name / "crossing.json"
    return json.loads(file.read_text()).get(version, {}) if file.exists() else {}


def logs_of(engine: str) -> dict[Path, str]:
    """The op-logs that fail on a release, each with its bug; a mutant has no bug of that name."""
    name, _, version = engine.partition("==")
    of_bugs = {shown.path: shown.bug.name for shown in op_logs_of(name) if shown.span.has(version)}
    return of_bugs | dict.fromkeys(sorted(FOLDER.glob(f"{name}/mutants/*.oplog")), "")


def causes_without_own_fix(path: Path, engine: str, own: str) -> tuple[str, ...]:
    """The bugs of which the failure of an op-log is judged to be if the fix of its own bug is unknown."""
    target = target_of(engine)
    target.prepare_process()
    log = OpLog.load(path, engine=engine)
    failure = run_log(log).failure
    return Verifier(target, (*log.header.fixes, own)).cause_of(failure, log).bugs if failure is not None else ()


def foreign_cures(path: Path, engine: str, own: str) -> dict[str, Any]:
    """How many fixes an op-log reaches, and those of other bugs that cure it alone; their number without `cures`."""
    target = target_of(engine)
    target.prepare_process()
    log = OpLog.load(path, engine=engine)
    failure = run_log(log).failure
    assert failure is not None, f"{path.stem} passes on {engine}"
    others = [bug for name, bug in target.known_bugs().items() if name not in log.header.fixes]
    fixes = [patch for bug in others if (patch := target.patch_of(bug)) is not None]
    judge = Judge(log, failure, fixes)
    reached = sorted(judge.ending().reached)
    cures = [name for name in reached if judge.cures([name])]
    passes = [name for name in reached if name not in cures and judge.ending([name]).failure is None]
    return {"reached": len(reached), "own": own in cures, "cures": [n for n in cures if n != own], "refuses": passes}


def main(engine: str, *words: str) -> None:
    """Cross all op-logs and write the file; reasons that are there stay."""
    name, _, version = engine.partition("==")
    known, found = data_of(engine), {}
    for path, own in logs_of(engine).items():
        if any(word in path.stem for word in words or [""]):
            start = process_time()
            crossed = foreign_cures(path, engine, own)
            causes = causes_without_own_fix(path, engine, own)
            row = {"log": path.stem} | crossed | {"known_as": causes, "cpu": round(process_time() - start, 2)}
            sys.stdout.write(f"{json.dumps(row)}\n")
            sys.stdout.flush()
            reasons = known.get(path.stem, {})
            if foreign := sorted({*crossed["cures"], *causes}):
                found[path.stem] = {fix: reasons.get(fix, "") for fix in foreign}
        elif path.stem in known:
            found[path.stem] = known[path.stem]
    file = FOLDER / name / "crossing.json"
    releases = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(releases | {version: found}, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
