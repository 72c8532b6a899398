"""The table of programs: `python -m docs.make.programs ENGINE==VERSION [NAME ...]` runs each and writes programs.json.

A program is run on the release, with the fix of its finding, and with the fix of another one; each in a process of its
own, which has the release and the stand-ins of swarden.
"""

import json
import sys

from docs.make.pages import PROGRAMS, own_bugs, results
from swarden.harness.core.known_bug import PRIVATE, KnownBug
from swarden.harness.core.program import SCRIPT, NoProgram
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import Target, prepare
from swarden.harness.report.program import HEADING, program_text
from swarden.harness.search.programs import BUG, Found, ended_here

NO_BUG, UNSEEN = "no bug", "not run: its program does not show it"


def main(engine: str, *names: str) -> None:
    target = target_of(engine)
    prepare(target)
    version = target.version()
    bugs = [bug for bug in own_bugs(target.name) if bug.has(version) and bug.oplogs and bug.verdict != PRIVATE]
    table, lost = results(), list[str]()
    for bug in [bug for bug in bugs if not names or bug.name in names]:
        entry = ran(bug, target, [other.name for other in bugs if other.patch_for(version) is not None])
        sys.stdout.write(f"{bug.name} {entry}\n")
        before = table.get(bug.name, {})
        if "output" in entry:
            is_real = before.get("run", "").startswith("ran for real ")
            real = {"run": before["run"], "output": before["output"]} if is_real else {}
            table[bug.name] = {"with_fix": before.get("with_fix", ""), **entry, **real}
        elif before.get("program") == SCRIPT:
            lost.append(bug.name)
        elif not before or not entry["run"].startswith(UNSEEN):
            table[bug.name] = before if "output" in before else entry
    PROGRAMS.write_text(json.dumps(dict(sorted(table.items())), indent=2) + "\n")
    if lost:
        sys.exit(f"these show their bug no more, and the table has what they showed: {', '.join(lost)}")


def ran(bug: KnownBug, target: Target, fixes: list[str]) -> dict[str, str]:
    """What the program of a bug shows; why it has none."""
    shown = Found(bug.name, next(iter(bug.oplogs)), f"{target.name}=={target.version()}", bug)
    try:
        text = program_text(target.programs()[SCRIPT](shown.load()), bug.title, shown.engine)
        own, *others = [bug.name, *[name for name in fixes if name != bug.name]]
        ends = {
            "output": ended_here(text, target).line,
            **({"with_fix": ended_here(text, target, own).line} if own in fixes else {}),
            **({"with_other_fix": ended_here(text, target, others[0]).line, "other_fix": others[0]} if others else {}),
        }
    except NoProgram as reason:
        return {"program": "none", "run": f"not run: {reason}"}
    if not ends["output"].startswith(BUG) or ends.get("with_fix", NO_BUG) != NO_BUG:
        return {"program": "none", "run": f"{UNSEEN}: {ends['output']}"}
    case = text.partition(HEADING)[2].partition("\n\n\n")[0]
    lines = {"lines_of_case": str(len(case.splitlines())), "lines": str(len(text.splitlines()))}
    return {"program": SCRIPT, "run": f"ran on {target.name} {target.version()} with stand-ins", **lines, **ends}


if __name__ == "__main__":
    main(*sys.argv[1:])
