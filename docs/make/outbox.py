"""`python -m docs.make.outbox` writes docs/findings/outbox: what a person can post, each with its
program, which is run.

`python -m docs.make.outbox NAME...` writes those of the engines and findings that are named, and leaves the others.
`python -m docs.make.outbox --texts` writes the texts around the programs as they are, and runs none.

A bug that has no document has no file there. Its order.toml has the order of posting, and why.
"""

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from docs.make.pages import ENGINES, FINDINGS, ROOT, own_bugs
from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import PRIVATE, KnownBug
from swarden.harness.core.process import Process
from swarden.harness.core.program import NoProgram
from swarden.harness.core.registry import target_of
from swarden.harness.report.known_bug import GITHUB, Home, home_of, issue
from swarden.harness.search.programs import Form, Found, Ran, Written, engines_to_run, find, run_program, written_of

OUTBOX = FINDINGS / "outbox"
PROGRAM = re.compile(r"^<details><summary>The whole.*\n\n```python\n(.*?)^```\n\n</details>$", re.MULTILINE | re.DOTALL)
NOT_WORTH = "not worth posting"
HOLD = "hold"  # in the order of posting: not before its reason is gone
SERVER = "server"  # no package of ours: a person runs it, and its row and its file stay as they are
WORST_FIRST = ("wrong answer", "dies", "stops answering", "never answered", "aborted", "error")
ORDER = OUTBOX / "order.toml"
HEAD = """# Outbox

What a person can post, in the order of `order.toml`: one text for each engine and day, by somebody who answers. A file
has the title and the body of an issue or a comment, and its program is folded; LINK is the address of this repository.
`python -m docs.make.outbox --texts` writes the texts and this table.

| day | engine | title | where | why then |
| --- | --- | --- | --- | --- |
"""
PROGRAMS = """
## Programs

`python -m docs.make.outbox` runs the programs; `swarden repro NAME --as script --run` runs one. A bug that is not
judged yet has a row and no file; one that no installed release has, has no row.

*For real*: all packages are those of the release, and only the model runner is the program's own. *With stand-ins*:
packages that the release imports, and that are not installed here, are replaced; none of them touches KV memory.

| finding | program | run | output | with the fix, or on the newest release | verdict |
| --- | --- | --- | --- | --- | --- |
"""


class Row(NamedTuple):
    """A line of the table; the `rank` sorts it, the name and the other cells follow."""

    rank: int
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return f"| {' | '.join(cell.replace('|', '/') for cell in self.cells)} |"


class Writer:
    """Writes the files of the findings. The texts of a release are made in one process."""

    def __init__(self, processes: ExitStack) -> None:
        self._processes = processes
        self._of: dict[str, Process] = {}

    def row(self, found: Found) -> Row:
        """The row of a finding, whose files are written if it can be posted."""
        bug, is_posted = found.bug, found.bug is not None and is_for_outbox(found.bug)
        name = f"[{found.name}]({found.name}.md)" if is_posted else found.name
        verdict = bug.verdict if bug is not None else "not judged yet"
        if is_posted:
            (OUTBOX / f"{found.name}.md").write_text(self._written(found, Form.ISSUE).text)
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
            return Row(rank_of(bug), (name, "none", f"not run: {error}", "", "", verdict))
        if form is Form.HTTP:
            return Row(rank_of(bug), (name, str(form), "not run: needs a server with a GPU", "", "", verdict))
        ran = shown_by(program, found)
        return Row(rank_of(bug), (name, str(form), ran.how, ran.line, passes_with(program, found), verdict))

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


def texts() -> dict[Path, str]:
    """The files that can be posted, with the programs that they have now, or none, and the table of them."""
    written = {OUTBOX / "README.md": HEAD + ranked() + PROGRAMS + programs_before()}
    for bug, engine in posted().values():
        path = OUTBOX / f"{bug.name}.md"
        found = PROGRAM.search(path.read_text()) if path.exists() else None
        written[path] = issue(bug, target_of(engine), found[1] if found else "")
    return written


def posted() -> dict[str, tuple[KnownBug, str]]:
    """The bugs that can be posted, each with its engine, by name."""
    return {bug.name: (bug, engine) for engine in ENGINES for bug in own_bugs(engine) if is_for_outbox(bug)}


def ranked() -> str:
    """The rows of the table in the order of posting; each engine has a text a day."""
    bugs, days, rows = posted(), Counter[str](), list[str]()
    for wave, reasons in tomllib.loads(ORDER.read_text()).items():
        for name, why in reasons.items():
            bug, engine = bugs[name]
            home = home_of(bug, target_of(engine))
            days[home.repository] += wave != HOLD
            day = HOLD if wave == HOLD else str(days[home.repository])
            rows.append(f"| {day} | {engine} | [{bug.title}]({name}.md) | {where_of(bug, home)} | {why} |\n")
    return "".join(rows)


def where_of(bug: KnownBug, home: Home) -> str:
    """The address of the verdict: that of the thread, or of a new issue."""
    *_, kind, number = ("", *bug.verdict.split())
    path = f"{'pull' if kind == 'pull' else 'issues'}/{number if number.isdigit() else 'new'}"
    return f"[{bug.verdict}]({GITHUB}/{home.repository}/{path})"


def programs_before() -> str:
    """The rows of the programs as they are."""
    return (OUTBOX / "README.md").read_text().partition(PROGRAMS)[2]


def is_for_outbox(bug: KnownBug) -> bool:
    return bug.document is not None and bug.verdict not in (NOT_WORTH, PRIVATE)


def rank_of(bug: KnownBug | None) -> int:
    effect = "" if bug is None else bug.effect
    return next((rank for rank, word in enumerate(WORST_FIRST) if word in effect), len(WORST_FIRST) + (bug is None))


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


def rows_before() -> dict[str, tuple[str, ...]]:
    """The cells of the table as it is, by the name of the finding."""
    lines = programs_before().splitlines()
    rows = [tuple(line.removeprefix("| ").removesuffix(" |").split(" | ")) for line in lines]
    return {cells[0].removeprefix("[").partition("]")[0]: cells for cells in rows}


def main(names: list[str]) -> None:
    before = rows_before()
    servers = [bug for bug in own_bugs(SERVER) if bug.name in before]
    for path in OUTBOX.glob("*.md") if not names else ():
        if path.stem not in {bug.name for bug in servers}:
            path.unlink()
    with ExitStack() as processes:
        writer, rows = Writer(processes), [Row(rank_of(bug), before[bug.name]) for bug in servers]
        for found in findings():
            if not names or {found.name, found.target.name} & set(names):
                rows.append(writer.row(found))
            elif found.name in before:
                rows.append(Row(rank_of(found.bug), before[found.name]))
    programs = "".join(f"{row}\n" for row in sorted(rows))
    (OUTBOX / "README.md").write_text(HEAD + ranked() + PROGRAMS + programs)


if __name__ == "__main__":
    if sys.argv[1:] == ["--texts"]:
        for path, text in texts().items():
            path.write_text(text)
    else:
        main(sys.argv[1:])
