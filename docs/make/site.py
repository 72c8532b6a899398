"""The site: `python -m docs.make.site FOLDER` writes its sources below a new folder, and builds it with Sphinx.

The documents keep their paths, and README.md is the first page.  The made pages are written among them: a page for each
public finding, and the parts that no file of the repository has, behind the mark in their documents.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path, PurePosixPath

from docs.make import checks_page, cli_page, pages
from docs.make.pages import ROOT
from swarden.harness.core.known_bug import EMBARGO
from swarden.harness.engines.own.mutants.catalog import BUGS
from swarden.harness.search.mutants import kill_matrix

CONF = Path(__file__).with_name("sphinx")
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
NAME = re.compile(r"(?<![\[`])`([a-z0-9-]+)`(?!`)")
MARK = re.compile(r"<!-- on the site: .* -->\n")
FOREIGN = re.compile(
    r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"((?:https?:)?//[^\"]*)\"|url\(['\"]?(https?:[^)'\"]*)\)"
)
README, FIRST = PurePosixPath("README.md"), PurePosixPath("index.md")
FINDINGS = PurePosixPath("docs/findings")
ORPHAN = "---\norphan: true\n---\n"  # the table of findings lists them


def matrix_text() -> str:
    matrix = kill_matrix.KillMatrix(BUGS, json.loads((ROOT / "tests/quality/kill_matrix.json").read_text()))
    return kill_matrix.page(matrix).removeprefix(kill_matrix.HEAD)


MADE: Mapping[str, Callable[[], str]] = {  # behind the mark of a document
    "docs/checks.md": checks_page.entries_text,
    "docs/cli.md": cli_page.reference_text,
    "docs/kill-matrix.md": matrix_text,
}
GROUPS = {  # of the contents; other documents come last
    "Use": ("quickstart", "ci", "pytest", "nightly", "attach", "servers", "your-engine", "releases"),
    "Findings": ("findings/README", "findings/numbers", "findings/outbox/README", "triage", "reports"),
    "Reference": ("checks", "cli", "glossary", "kill-matrix", "strict-check"),
    "Engines": ("engines", "sglang", "vllm", "transformers", "lmdeploy", "own-engine"),
    "Project": ("architecture", "/CONTRIBUTING", "/CHANGELOG", "/SECURITY"),
}


def sources() -> dict[PurePosixPath, str]:
    """The pages by path: the documents of the repository with their generated ends, and the findings."""
    findings = {PurePosixPath(path.relative_to(ROOT)): ORPHAN + text for path, text in pages.documents().items()}
    written = {path: (ROOT / path).read_text() for path in documents()}
    made = {
        path: text[: mark.end()] + MADE[str(path)]() for path, text in written.items() if (mark := MARK.search(text))
    }
    names = {path.stem for path in findings}
    by_path = written | made | findings
    by_path[FIRST] = by_path.pop(README) + contents(set(by_path) - set(findings))
    return {path: on_site(text, path, names) for path, text in by_path.items()}


def documents() -> list[PurePosixPath]:
    """The documents of the repository, but for those of the tests."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "harness").rglob("*.md")]
    return [PurePosixPath(path.relative_to(ROOT)) for path in sorted(paths)]


def contents(paths: set[PurePosixPath]) -> str:
    """The contents at the side of each page; a document that no group names is in the last one."""
    groups = {
        caption: [name if name[0] == "/" else f"/docs/{name}" for name in names] for caption, names in GROUPS.items()
    }
    others = {f"/{path.with_suffix('')}" for path in paths} - {name for names in groups.values() for name in names}
    trees = [
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *names, "```", ""])
        for caption, names in {**groups, "More": sorted(others)}.items()
        if names
    ]
    return "".join(trees)


def on_site(text: str, path: PurePosixPath, findings: Container[str] = ()) -> str:
    """A page whose links lead to pages and files of the site: the name of a finding is one, a folder is none."""
    folder = os.path.dirname(path)

    def replaced(link: re.Match[str]) -> str:
        place = os.path.normpath(os.path.join(folder, link[2]))
        if place == str(README):
            return f"[{link[1]}]({os.path.relpath(FIRST, folder)}{link[3] or ''})"
        return link[1] if (ROOT / place).is_dir() else link[0]

    def linked(name: re.Match[str]) -> str:
        page = FINDINGS / f"{name[1]}.md"
        return f"[{name[0]}]({os.path.relpath(page, folder)})" if name[1] in findings and page != path else name[0]

    parts = FENCED.split(text)
    return "".join(part if FENCED.match(part) else NAME.sub(linked, LINK.sub(replaced, part)) for part in parts)


def files_of(text: str, path: PurePosixPath) -> Iterator[str]:
    """The files of the repository that a page links, such as an op-log or a picture."""
    for _, target, _ in LINK.findall(FENCED.sub("", text)):
        place = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if (ROOT / place).is_file() and not place.endswith(".md"):
            yield place


def foreign(text: str) -> list[str]:
    """The scripts, styles, pictures and fonts of other hosts that a page or a style loads."""
    return [first or second for first, second in FOREIGN.findall(text)]


def build(folder: Path) -> str | int:
    """Write the sources and the site below a folder, in place of old ones; returns the errors, 0 if there are none."""
    os.environ.pop(EMBARGO, None)
    source, html = folder / "source", folder / "html"
    for old in (source, html):
        shutil.rmtree(old, ignore_errors=True)
    for path, text in sources().items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
        for file in files_of(text, path):
            (source / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, source / file)
    options = ["-W", "--keep-going", "-q", "-j", "auto", "-c", str(CONF), "-d", str(folder / "cache")]
    built = subprocess.run([sys.executable, "-m", "sphinx", *options, str(source), str(html)], check=False)
    files = (path for path in html.rglob("*") if path.suffix in (".html", ".css"))
    loaded = [f"{path}: loads {address}" for path in files for address in foreign(path.read_text())]
    return built.returncode or "\n".join(loaded) or 0


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
