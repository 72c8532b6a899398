"""The op-logs of the known bugs of an engine, for the tests of each release."""

import ast
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from docs.make.pages import own_bugs
from swarden.harness.core.admission import load_log
from swarden.harness.core.changes import fix_of, patch_of
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.known_bug import KnownBug, Span
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import run_log
from swarden.harness.report.known_bug import diff_of
from swarden.harness.search.programs import find
from swarden.harness.search.verification import Verifier
from tests.engines.some_laws import laws_of


class Shown(NamedTuple):
    """An op-log, the bug that it shows, and the releases on which it fails."""

    bug: KnownBug
    path: Path
    span: Span

    def __str__(self) -> str:
        return self.path.stem


def op_logs_of(engine):
    """All op-logs of the bugs of an engine."""
    return [Shown(bug, path, span) for bug in own_bugs(engine) for path, span in bug.oplogs.items()]


def laws_with(path, engine, fix=""):
    """The laws that fail, with a fix planted; none if the release has not the part that has the bug."""
    if load_log(path).header.machine not in target_of(engine).machines:
        return set()
    try:
        if not fix:
            return laws_of(path, engine)
        target = target_of(engine)
        target.prepare_process()
        with fix_of(target, fix).planted():
            return laws_of(path, engine)
    except InvalidConfig:
        return set()


def causes_of(path, engine, name):
    """The known bugs of which the failure of an op-log is judged to be; the bug of this name if it does not fail.

    A bug whose fix is broad is among the namesakes.
    """
    target = target_of(engine)
    target.prepare_process()
    if load_log(path).header.machine not in target.machines:
        return {name}
    log = load_log(path, engine=engine)
    failure = run_log(log).failure
    if failure is None:
        return {name}
    cause = Verifier(target, log.header.fixes).cause_of(failure, log)
    return cause.bugs if not target.known_bugs()[name].broad else cause.namesakes


def failures_with_large_pools(name, engine):
    """The fingerprints of a bug's own op-log with its large pools, and with the fix of the bug planted, too."""
    target = target_of(engine)
    target.prepare_process()
    found = find(name, engine)
    log = found._replace(settings=target.known_bugs()[name].large_pools).load()
    failure = run_log(log).failure
    with fix_of(target, name).planted():
        fixed = run_log(log).failure
    return set(failure.fingerprints if failure is not None else ()), fixed and fixed.fingerprint


def plant_all(engine):
    """Plant all fixes of a release together; returns their names."""
    target = target_of(engine)
    target.prepare_process()
    names = [name for name, bug in target.known_bugs().items() if bug.patch_for(target.version()) is not None]
    with ExitStack() as planted:
        for name in names:
            assert patch_of(target, target.known_bugs()[name]), f"the release lacks a name in the fix of {name}"
            planted.enter_context(fix_of(target, name).planted())
    return names


def misplaced(engine):
    """The places of code that are not in the function or class that a document of this release names."""
    target = target_of(engine)
    assert target.releases is not None
    root, *_ = target.releases.folders_of(target.version())
    wrong = []
    for bug in own_bugs(target.name):
        if bug.document is not None and bug.document.code_release == target.version():
            places = [one for one in bug.document.code if one.name not in names_around(root / one.file, one.line)]
            wrong += [f"{bug.name}: {one}" for one in places]
    return wrong


def misfits(engine, folder):
    """The fixes of documents whose diff git does not apply as it stands to the files of this release."""
    target = target_of(engine)
    assert target.releases is not None
    root, *_ = target.releases.folders_of(target.version())
    wrong = []
    for bug in own_bugs(target.name):
        for fix in bug.fixes if bug.document is not None else ():
            if fix.releases[1] == target.version():
                for hunk in fix.hunks:
                    file = Path(f"{hunk.at.partition(':')[0].replace('.', '/')}.py")
                    (folder / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(root / file, folder / file)
                command = ["git", "apply", "--verbose", *["--unidiff-zero"] * (not fix.context)]
                run = subprocess.run(
                    command, input=diff_of(fix, ""), cwd=folder, capture_output=True, text=True, check=False
                )
                if run.returncode or "offset" in run.stderr:
                    wrong.append(f"{bug.name}: {run.stderr}")
    return wrong


def names_around(path, line):
    """The functions and classes of a file around a line."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = [one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, kinds)]
    return {one.name for one in nodes if one.lineno <= line <= one.end_lineno}
