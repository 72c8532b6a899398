"""docs/findings/outbox: what a person can post, in which order, and what the programs of the findings have shown.

`python -m docs.make.outbox` runs the programs of all findings, and writes programs.json and the table; with names of
engines and findings it runs those, and keeps what it has of the others.  With --table it runs none.

A bug that has no document is not posted.  order.toml has the order of posting, and why.
"""

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import ExitStack, suppress

from docs.make.pages import ENGINES, FINDINGS, ROOT, kept, own_bugs
from swarden.harness.commands.repro import Form, Found, Ran, Written, engines_to_run, find, run_program, written_of
from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import PRIVATE, KnownBug
from swarden.harness.core.process import Process
from swarden.harness.core.program import NoProgram
from swarden.harness.core.registry import target_of
from swarden.harness.report.known_bug import GITHUB, Home, home_of

OUTBOX = FINDINGS / "outbox"
NOT_WORTH = "not worth posting"
HOLD = "hold"  # in the order of posting: not before its reason is gone
SERVER = "server"  # no package of ours: a person runs it, and its result stays as it is
ORDER = OUTBOX / "order.toml"
TABLE = OUTBOX / "README.md"
PROGRAMS = OUTBOX / "programs.json"
HEAD = """# Outbox

What a person can post, in the order of `order.toml`: one text for each engine and day, by somebody
who answers. `swarden repro NAME --as issue` writes the text: the title and the body of an issue or
a comment, with the program folded if a release that has the bug is installed. LINK in it is the
address of this repository. `swarden repro NAME --as script --run` runs the program alone.

`programs.json` has what each program printed, and with which packages: *for real* if all packages
are those of the release and only the model runner is the program's own; *with stand-ins* if
packages that the release imports are replaced, none of which touches KV memory.
`python -m docs.make.outbox` writes both files.

| day | engine | finding | where | why then |
| --- | --- | --- | --- | --- |
"""


def page(linked: Container[str] = ()) -> str:
    """The table in the order of posting; each engine has a text a day.  The names in `linked` are links."""
    bugs, days, rows = posted(), Counter[str](), list[str]()
    for wave, reasons in tomllib.loads(ORDER.read_text()).items():
        for name, why in reasons.items():
            bug, engine = bugs[name]
            home = home_of(bug, target_of(engine))
            days[home.repository] += wave != HOLD
            day = HOLD if wave == HOLD else str(days[home.repository])
            shown = f"[{name}](../{name}.md)" if name in linked else name
            rows.append(f"| {day} | {engine} | {shown} | {where_of(bug, home)} | {why} |\n")
    return HEAD + "".join(rows)


def posted() -> dict[str, tuple[KnownBug, str]]:
    """The bugs that can be posted, each with its engine, by name."""
    return {bug.name: (bug, engine) for engine in ENGINES for bug in own_bugs(engine) if is_for_outbox(bug)}


def where_of(bug: KnownBug, home: Home) -> str:
    """The address of the verdict: that of the thread, or of a new issue."""
    *_, kind, number = ("", *bug.verdict.split())
    path = f"{'pull' if kind == 'pull' else 'issues'}/{number if number.isdigit() else 'new'}"
    return f"[{bug.verdict}]({GITHUB}/{home.repository}/{path})"


def is_for_outbox(bug: KnownBug) -> bool:
    return bug.document is not None and bug.verdict not in (NOT_WORTH, PRIVATE)


class Runner:
    """Runs the programs of findings. The programs of a release are written in one process."""

    def __init__(self, processes: ExitStack) -> None:
        self._processes = processes
        self._of: dict[str, Process] = {}

    def result(self, found: Found) -> dict[str, str]:
        """What the program of a finding has shown, or why there is none or it was not run."""
        form = Form.SCRIPT
        try:
            try:
                program = self._written(found, form)
            except NoProgram:
                if Form.HTTP not in found.target.programs():
                    raise
                form = Form.HTTP
                program = self._written(found, form)
        except UsageError as error:
            return {"program": "none", "run": f"not run: {error}"}
        if form is Form.HTTP:
            return {"program": form, "run": "not run: needs a server with a GPU"}
        ran = shown_by(program, found)
        return {"program": form, "run": ran.how, "output": ran.line, "with_fix": passes_with(program, found)}

    def _written(self, found: Found, form: Form) -> Written:
        if found.engine not in self._of:
            self._of[found.engine] = self._processes.enter_context(Process())
        written: Written = self._of[found.engine].call(written_of, found, form)
        return written


def shown_by(program: Written, found: Found) -> Ran:
    """The first run that shows the bug; the last one if none does."""
    for engine in engines_to_run(found):
        ran = run_program(program, engine)
        if ran.shows_bug:
            break
    return ran


def passes_with(program: Written, found: Found) -> str:
    """What the program says with the fix of its bug, else on the newest release; "" if that is the same release."""
    releases = found.target.releases
    assert releases is not None, f"{found.engine} has no releases"
    newest = f"{found.target.name}=={releases.installed()[-1]}"
    if found.bug is not None and found.bug.patch_for(found.target.version()) is not None:
        return run_program(program, found.engine, found.name).line
    return f"{run_program(program, newest).line} on {newest}" if newest != found.engine else ""


def findings() -> Iterator[Found]:
    """The known bugs that an installed release has, and the op-logs of bugs that are not judged yet."""
    for engine in ENGINES:
        folder = ROOT / "harness/engines" / engine.replace("-", "_") / "findings"
        bugs = {bug.name: bug for bug in own_bugs(engine)}
        of_bugs = {path.stem for bug in bugs.values() for path in bug.oplogs}
        others = [path.stem for path in sorted(folder.glob("*.oplog")) if path.stem not in of_bugs]
        for finding in [*bugs, *[str(folder / f"{name}.oplog") for name in others]]:
            with suppress(UsageError):  # the release is not installed
                yield find(finding, None)


def results() -> dict[str, dict[str, str]]:
    """What the programs have shown, by the name of the finding."""
    shown: dict[str, dict[str, str]] = json.loads(PROGRAMS.read_text())
    return shown


def run(names: list[str]) -> None:
    before = results()
    shown = {bug.name: before[bug.name] for bug in own_bugs(SERVER) if bug.name in before}
    with ExitStack() as processes:
        runner = Runner(processes)
        for found in findings():
            if not names or {found.name, found.target.name} & set(names):
                shown[found.name] = {key: text for key, text in runner.result(found).items() if text}
            elif found.name in before:
                shown[found.name] = before[found.name]
    PROGRAMS.write_text(json.dumps(dict(sorted(shown.items())), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--table"]:
        run(sys.argv[1:])
    TABLE.write_text(page(kept()))
