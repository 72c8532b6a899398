"""docs/findings/outbox: what a person can post, and in which order.  `python -m docs.make.outbox` writes the table.

A bug that has no document is not posted.  order.toml has the order of posting, and why; programs.json has what the
programs of the findings have shown, as `swarden repro NAME --as script --run` printed it.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping

from docs.make.pages import ENGINES, FINDINGS, own_bugs, results
from swarden.harness.core.known_bug import PRIVATE, KnownBug
from swarden.harness.core.registry import target_of
from swarden.harness.report.known_bug import GITHUB, Home, home_of

OUTBOX = FINDINGS / "outbox"
NOT_WORTH = "not worth posting"
HOLD = "hold"  # in the order of posting: not before its reason is gone
ORDER = OUTBOX / "order.toml"
TABLE = OUTBOX / "README.md"
HEAD = """# Outbox

What a person can post, in the order of `order.toml`: one text for each engine and day, by somebody
who answers. `swarden repro NAME --as issue` writes the text: the title and the body of an issue or
a comment, with the program folded if a release that has the bug is installed. LINK in it is the
address of this repository.

`programs.json` has what the program of each has shown: the packages, and the output. A program ran
*for real* if all packages are those of the release and only the model runner is its own; *with
stand-ins* if packages that the release imports are replaced, none of which touches KV memory.

| day | engine | finding | where | why then |
| --- | --- | --- | --- | --- |
"""

PROGRAMS_HEAD = """
## Programs

{count} findings have a program that was run. `python -m docs.make.programs ENGINE==VERSION` runs
those of a release again: as it is, with the fix of the finding, and with the fix of another one.
The lines are those of the case, and all. Where no lines are named, the program was not run again
since it was last written.

| finding | form | case | all | ran | on the release | with its fix | with another fix |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
REASONS_HEAD = """
## Findings without a program

| finding | why |
| --- | --- |
"""


def page() -> str:
    """The table in the order of posting; each engine has a text a day."""
    bugs, days, rows = posted(), Counter[str](), list[str]()
    for wave, reasons in tomllib.loads(ORDER.read_text()).items():
        for name, why in reasons.items():
            bug, engine = bugs[name]
            home = home_of(bug, target_of(engine))
            days[home.repository] += wave != HOLD
            day = HOLD if wave == HOLD else str(days[home.repository])
            rows.append(f"| {day} | {engine} | `{name}` | {where_of(bug, home)} | {why} |\n")
    return HEAD + "".join(rows) + programs_table()


def programs_table() -> str:
    """What the programs have shown: on the release, with the fix of the finding, and with the fix of another one."""
    shown = {name: result for name, result in results().items() if "output" in result}
    rows = [
        f"| `{name}` | {result['program']} | {result.get('lines_of_case', '')} | {result.get('lines', '')} "
        f"| {_how(result['run'])} | {result['output']} | {result.get('with_fix', '')} | {_other(result)} |\n"
        for name, result in shown.items()
    ]
    reasons = [f"| `{name}` | {result['run']} |\n" for name, result in results().items() if "output" not in result]
    return PROGRAMS_HEAD.format(count=len(shown)) + "".join(rows) + REASONS_HEAD + "".join(reasons)


def _how(run: str) -> str:
    """How a program ran, without the names of the packages that were replaced."""
    how, replaces, _ = run.removeprefix("ran ").partition(" with ")
    return f"{how}, with stand-ins" if replaces else how.partition(",")[0]


def _other(result: Mapping[str, str]) -> str:
    """Whether the fix of another finding leaves the output as it is."""
    if "other_fix" not in result:
        return ""
    is_same = result["with_other_fix"] == result["output"]
    return "the same" if is_same else f"{result['with_other_fix']} (`{result['other_fix']}`)"


def posted() -> dict[str, tuple[KnownBug, str]]:
    """The bugs that can be posted, each with its engine, by name."""
    return {bug.name: (bug, engine) for engine in ENGINES for bug in own_bugs(engine) if is_for_outbox(bug)}


def where_of(bug: KnownBug, home: Home) -> str:
    """The address for the verdict: of the thread to comment on, or of a new issue."""
    *_, kind, number = ("", *bug.verdict.split())
    path = f"{'pull' if kind == 'pull' else 'issues'}/{number if number.isdigit() else 'new'}"
    return f"[{bug.verdict}]({GITHUB}/{home.repository}/{path})"


def is_for_outbox(bug: KnownBug) -> bool:
    return bug.document is not None and bug.verdict not in (NOT_WORTH, PRIVATE)


if __name__ == "__main__":
    TABLE.write_text(page())
