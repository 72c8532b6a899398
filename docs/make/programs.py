"""The table of programs: `python -m docs.make.programs ENGINE==VERSION [NAME ...]` runs each and writes programs.json.

A program is run on the release, with the fix of its finding, and with the fix of another one; each in a process of its
own, which has the release and the stand-ins of swarden.
"""

import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.make.pages import PROGRAMS, own_bugs, results
from swarden.harness.core.changes import fix_of
from swarden.harness.core.known_bug import PRIVATE, KnownBug
from swarden.harness.core.program import SCRIPT, NoProgram
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import Target, prepare
from swarden.harness.report.program import program_text
from swarden.harness.search.programs import BUG, Found

NO_BUG = "no bug"


def main(engine: str, *names: str) -> None:
    target = target_of(engine)
    prepare(target)
    version = target.version()
    bugs = [bug for bug in own_bugs(target.name) if bug.has(version) and bug.oplogs and bug.verdict != PRIVATE]
    table = results()
    for bug in [one for one in bugs if not names or one.name in names]:
        entry = ran(bug, target, [one.name for one in bugs if one.patch_for(version) is not None])
        sys.stdout.write(f"{bug.name} {entry}\n")
        if "output" in entry or "output" not in table.get(bug.name, {}):
            before = table.get(bug.name, {})
            is_real = "output" in entry and before.get("run", "").startswith("ran for real ")
            table[bug.name] = entry | ({"run": before["run"], "output": before["output"]} if is_real else {})
    PROGRAMS.write_text(json.dumps(dict(sorted(table.items())), indent=2) + "\n")


def ran(bug: KnownBug, target: Target, fixes: list[str]) -> dict[str, str]:
    """What the program of a bug shows; why it has none."""
    path, engine = next(iter(bug.oplogs)), f"{target.name}=={target.version()}"
    code, text = forked(lambda: written(Found(bug.name, path, engine, bug), target))
    if code:
        return {"program": "none", "run": f"not run: {text.splitlines()[-1]}"}
    others = [name for name in fixes if name != bug.name]
    ends = {
        "output": run(text, target),
        **({"with_fix": run(text, target, bug.name)} if bug.name in fixes else {}),
        **({"with_other_fix": run(text, target, others[0]), "other_fix": others[0]} if others else {}),
    }
    if not ends["output"].startswith(BUG) or ends.get("with_fix", NO_BUG) != NO_BUG:
        return {"program": "none", "run": f"its program does not show it: {ends}"}
    case = text.partition("def run(")[2].partition("\n\n\n")[0]
    lines = {"lines_of_case": str(len(case.splitlines())), "lines": str(len(text.splitlines()))}
    return {"program": SCRIPT, "run": f"ran on {target.name} {target.version()} with stand-ins", **lines, **ends}


def written(found: Found, target: Target) -> int:
    try:
        program = target.programs()[SCRIPT](found.load())
    except NoProgram as reason:
        sys.stdout.write(str(reason))
        return 2
    title = found.bug.title if found.bug is not None else found.name
    sys.stdout.write(program_text(program, title, found.engine))
    return 0


def run(text: str, target: Target, fix: str = "") -> str:
    """The last line of a program."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "program.py")
        path.write_text(text)

        def inside() -> int:
            with fix_of(target, fix).planted() if fix else nullcontext():
                try:
                    runpy.run_path(str(path), run_name="__main__")
                except SystemExit as end:
                    return int(str(end.code or 0))
            return 0

        return [line for line in forked(inside)[1].splitlines() if not line.startswith("stand-ins: ")][-1]


def forked(do: Callable[[], int]) -> tuple[int, str]:
    """The result and the output of a function in a process of its own, so that nothing that it replaces stays."""
    sys.stdout.flush()
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        code = 70
        try:
            code = do()
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), text


if __name__ == "__main__":
    main(*sys.argv[1:])
