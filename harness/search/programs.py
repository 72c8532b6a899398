"""A finding for its maintainers: a program that needs only the engine's package, and that is run here; or an issue."""

import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from enum import StrEnum
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import NamedTuple, TextIO

from swarden.harness.core.admission import check_version, load_log
from swarden.harness.core.changes import fix_of
from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import KnownBug
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.program import HTTP, ISSUE, PYTEST, SCRIPT, NoProgram
from swarden.harness.core.registry import installed, target_for, target_of
from swarden.harness.core.replay import Verdict
from swarden.harness.core.target import Target, prepare
from swarden.harness.report.known_bug import issue
from swarden.harness.report.program import program_text
from swarden.harness.report.story import StoryLine
from swarden.harness.report.vulnerability import WARNING, may_be_vulnerability
from swarden.harness.search.findings import test_text
from swarden.harness.search.fixed_settings import Settings, with_settings
from swarden.harness.search.replaying import replayed

SUFFIX = ".oplog"
BUG = "BUG: "  # how a program begins the line that says what it has shown
MOST_SECONDS = 600
REPLACED = "stand-ins: "  # how `run_inside` begins the line with the packages that it has replaced
INSIDE = f"import sys; from {__name__} import run_inside; run_inside(*sys.argv[1:])"


class Form(StrEnum):
    """The form in which a finding is written."""

    PYTEST, SCRIPT, HTTP, ISSUE = PYTEST, SCRIPT, HTTP, ISSUE


class Found(NamedTuple):
    """An op-log on an engine, with other `settings`, and the known bug that it shows, if it is one."""

    name: str
    path: Path
    engine: str
    bug: KnownBug | None
    settings: Settings | None = None

    @property
    def target(self) -> Target:
        return target_of(self.engine)

    def load(self) -> OpLog:
        log = load_log(self.path, engine=self.engine)
        if not self.settings:
            return log
        configs = [self.target.decode(config) for config in log.header.configs]
        changed = with_settings(self.target, configs, self.settings)
        return log.with_header(configs=[dict(self.target.encode(config)) for config in changed])


class Ran(NamedTuple):
    """A program that was run: on which release, with which packages replaced, and its exit code and last line."""

    how: str
    code: int
    line: str

    @property
    def shows_bug(self) -> bool:
        return self.code == 1 and self.line.startswith(BUG)


def find(finding: str, engine: str | None, *, needs_release: bool = True) -> Found:
    """A known bug by its name, on the newest installed release that has it, or an op-log file.  Raises UsageError.

    Without `needs_release` a bug that no installed release has is one of the engine alone.
    """
    if finding.endswith(SUFFIX):
        path = Path(finding)
        log = load_log(path, engine=engine)
        if engine is None:
            check_version(path, log.header, or_else="name another one with --engine")
        target = target_for(log.header)
        return Found(path.stem, path, f"{target.name}=={target.version()}" if target.releases else target.name, None)
    names = [engine.partition("==")[0]] if engine is not None else sorted(installed())
    bugs = {name: target_of(name).known_bugs() for name in names}
    holders = [name for name in names if finding in bugs[name]]
    if not holders:
        every = sorted({bug for of_engine in bugs.values() for bug in of_engine}) or ["none"]
        raise UsageError(f"{finding}: no known bug; name one of {', '.join(every)}, or an op-log file (*{SUFFIX})")
    name = min(holders, key=len)  # that of the engine, not of another build of it
    bug = bugs[name][finding]
    path, span = next(iter(bug.oplogs.items()))
    releases = target_of(name).releases
    having = [version for version in (releases.installed() if releases is not None else []) if span.has(version)]
    if engine is None and not having and not needs_release:
        return Found(finding, path, name, bug)
    if engine is None and not having:
        raise UsageError(f"{finding}: no release of {name} with this bug is installed; run: swarden engines install")
    return Found(finding, path, engine or f"{name}=={having[-1]}", bug)


def shown(found: Found) -> tuple[Sequence[str], Sequence[StoryLine]]:
    """The names of the failure of an op-log, and its story; raises UsageError if the op-log does not fail."""
    replays, story = replayed(found.load(), None, 1)
    if replays.verdict is Verdict.FIXED:
        raise UsageError(
            f"{found.path}: does not fail on {found.engine}; name a release on which it does with --engine"
        )
    return replays.fingerprints, story


def written_of(found: Found, form: Form, main: str = "not checked") -> str:
    """The text of the program, the test or the issue; raises UsageError if this finding cannot be one.

    An issue says that the engine's `main` is so.
    """
    programs = found.target.programs()
    if form is Form.ISSUE:
        own, is_run = "", found.bug is None or "==" in found.engine  # else no release of it is installed
        for own_form in (Form.SCRIPT, Form.HTTP) if is_run else ():
            if own_form in programs:
                with suppress(NoProgram):
                    own = _program(found, own_form)
        return issue(found.bug, found.target, own, main) if found.bug is not None else _issue_of_log(found, own)
    if form in programs:
        return _program(found, form)
    if form is Form.PYTEST and not programs:
        return test_text(found.load(), found.name, found.name)
    forms = ", ".join(programs) or PYTEST
    raise UsageError(f"--as {form}: {found.target.name} has no such program; want {forms} or {ISSUE}")


def _program(found: Found, form: Form) -> str:
    """Raises NoProgram unless the program shows the bug, and with its fix ends without it."""
    log = found.load()
    program = found.target.programs()[form](log)
    title = found.bug.title if found.bug is not None else log.header.expected or found.name
    text = program_text(program, title, found.engine)
    if form is Form.HTTP:
        return text
    ended = ended_here(text, found.target)
    if not ended.shows_bug:
        raise NoProgram(f"its program does not show it ({ended.line}); write it --as issue")
    if found.bug is not None and found.bug.patch_for(found.target.version()) is not None:
        fixed = ended_here(text, found.target, found.name)
        if fixed.code:
            raise NoProgram(f"its program does not pass with the fix ({fixed.line}); write it --as issue")
    return program_text(program, title, found.engine, is_test=True) if form is Form.PYTEST else text


def ended_here(program: str, target: Target, fix: str = "") -> Ran:
    """Run a program in a copy of this process, which has the release, so that nothing that it replaces stays.

    Raises NoProgram for one that does not end.
    """
    with TemporaryDirectory(prefix="swarden-") as folder, TemporaryFile("w+") as printed:
        path = Path(folder, "program.py")
        path.write_text(program)
        words = (f"{target.name}=={target.version()}", str(path), fix, printed)
        process = get_context("fork").Process(target=run_inside, args=words)
        process.start()
        process.join(MOST_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise NoProgram(f"its program did not end in {MOST_SECONDS} s; write it --as issue")
        printed.seek(0)
        return Ran("ran here", process.exitcode or 0, _last_line(printed.read()))


def _last_line(printed: str) -> str:
    return ([line for line in printed.strip().splitlines() if not line.startswith(REPLACED)] or [""])[-1]


def _issue_of_log(found: Found, program: str) -> str:
    """The issue for an op-log without a known bug: its failure, its settings and its program."""
    fingerprints, lines = shown(found)
    story = "\n".join(map(str, lines))
    folded = f"\n```python\n{program}```\n" if program else ""
    warning = f"**{WARNING}.**\n\n" if may_be_vulnerability(fingerprints, found.load().ops) else ""
    return f"{warning}# {fingerprints[0]}\n\nOn {found.engine}.\n\n```\n{story}\n```\n{folded}"


def engines_to_run(found: Found) -> list[str]:
    """The installed releases on which a program can show the finding; releases that need no stand-in come first."""
    package, real = found.target.code.package, list[str]()
    for name in sorted(installed()):
        target = target_of(name)
        if target.code.package == package and target.releases is not None and not target.releases.stand_ins:
            versions = [*reversed(target.releases.installed())]
            real += [f"{name}=={each}" for each in versions if found.bug is None or found.bug.has(each)]
    return [*real, found.engine]


def run_program(program: str, engine: str) -> Ran:
    """Run a program in a process of its own; without swarden if it needs no stand-in."""
    target = target_of(engine)
    target.check_environment()
    releases = target.releases
    if releases is None:
        raise UsageError(f"{engine}: is no release of a package; run the program with this Python")
    with TemporaryDirectory(prefix="swarden-") as folder:
        path = Path(folder, "program.py")
        path.write_text(program)
        command, variables = ["-c", INSIDE, engine, str(path), ""], {}
        if not releases.stand_ins:
            folders = releases.folders_of(target.version())
            command, variables = [str(path)], {"PYTHONPATH": os.pathsep.join(map(str, folders))}
        try:
            done = subprocess.run(
                [sys.executable, *command],
                env=os.environ | variables,
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"{engine}: the program did not end in {MOST_SECONDS} s; run it by hand") from error
    line = _last_line(done.stdout if done.returncode in (0, 1) and done.stdout else done.stderr)
    where = f"{target.name} {target.version()}"
    replaced = sorted(line.removeprefix(REPLACED) for line in done.stderr.splitlines() if line.startswith(REPLACED))
    how = f"ran on {where} with these stand-ins: {replaced[0]}" if replaced else f"ran for real on {where}"
    return Ran(how, done.returncode, line)


def run_inside(engine: str, path: str, fix: str, printed: TextIO | None = None) -> None:
    """Run a program in this process, with the release of an engine and the stand-ins that it needs."""
    target = target_of(engine)
    if printed is not None:
        sys.stdout = sys.stderr = printed
    prepare(target)
    with fix_of(target, fix).planted() if fix else nullcontext():
        try:
            sys.argv = [path]
            runpy.run_path(path, run_name="__main__")
        finally:
            absent = (*target.releases.stand_ins, "triton") if target.releases is not None else ()
            modules = {name: sys.modules[name] for name in absent if name in sys.modules}
            used = sorted(name for name, module in modules.items() if getattr(module, "__file__", None) is None)
            if used:
                sys.stderr.write(f"{REPLACED}{', '.join(used)}\n")
