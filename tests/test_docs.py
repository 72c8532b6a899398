"""The documentation: its commands are commands of this build, and its workflows pass a linter."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from docs.make import outbox, pages, site
from swarden.harness.cli import app
from swarden.harness.commands.backtest import shipped_pairs
from swarden.harness.core.registry import target_of
from swarden.harness.releases.backtest_results import cost_of
from swarden.harness.report import story
from swarden.harness.report.known_bug import CASE, PYTHON, issue
from swarden.invariants.catalog import ALL
from tests.tidy import PACKAGES

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# Not the pages that are made from the files of known bugs, whose texts issues of other projects have, too.
WRITTEN = [page for kept in [pages.kept()] for page in PAGES if page.stem not in kept]
TABLES = pages.FINDINGS / "README.md"
PRODUCT = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".py", ".j2")]
NAMED = re.compile(r"\bdocs/[\w./-]*\w")
IN_A_MESSAGE = re.compile(r"'(swarden [^'\n{]+)'")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SITE = ROOT / ".github/workflows/docs.yml"
ACTION = ROOT / ".github/actions/swarden/action.yml"
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
IN_A_LINE = re.compile(r"`((?:[A-Z_]+=\S+ )?swarden [^`]+)`")
REMARK = re.compile(r"  +.*| # .*| > .*| \| .*")
NOT_COUNTED = re.compile(r"^(?:<details>.*?^</details>|```python\n.*?^```)$", re.MULTILINE | re.DOTALL)
MOST_WORDS = 350  # of a text without its program
MOST_WORDS_OF_TABLES = 2_500
MOST_PLACES = 3
MOST_CPU_S = 600.0  # of a pair of releases in a backtest
WIDTH = 100
FIRST_SCREEN = ("# swarden", "**", "![", "python -m pip install .", "swarden demo", "make fuzz ", "make test ", "| ")
PLACEHOLDERS = {"DIR": ".", "N": "3", "K": "2", "SEED": "7", "ID": "B46", "$MINUTES": "3", "[ID…]": "B46"}


def commands_of(text: str) -> list[str]:
    """The commands of swarden in the fenced blocks and between single backquotes, without their remarks."""
    lines = [line for block in FENCED.findall(text) for line in block.splitlines()]
    lines += IN_A_LINE.findall(FENCED.sub("", text))
    found = [REMARK.sub("", re.sub(r"^([A-Z_]+=\S+ )+", "", line.removeprefix("- run: ").strip())) for line in lines]
    return [line for line in found if line.startswith("swarden ")]


def parse(line: str) -> None:
    """Parse a command with all its options, and do not run it; raises TyperException for one that does not exist.

    Of a line that only names a command, the name is looked up.
    """
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line)[1:]]
    command, context = get_command(app), None
    while words and isinstance(command, TyperGroup):
        context = command.make_context("swarden", words, parent=context)
        words = [*context._protected_args, *context.args]
        if words:
            _, found, words = command.resolve_command(context, words)
            assert found is not None, f"{line}: no such command"
            command = found
    if words:
        command.make_context("swarden", words, parent=context)


COMMANDS = sorted(
    {line for page in PAGES for line in commands_of(page.read_text())}
    | {line for path in PRODUCT for line in IN_A_MESSAGE.findall(path.read_text())}
)


@pytest.mark.parametrize("line", COMMANDS)
def test_command_of_the_documentation_is_one_of_this_build(line):
    parse(line)


@pytest.mark.parametrize("line", ["fly", "archive forget", "fuzz --hours 3", "archive quarantine X --reason Y"])
def test_command_that_is_none_of_this_build_is_refused(line):
    with pytest.raises(typer.TyperException):
        parse(f"swarden {line}")


def anchors_of(text: str) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    """The links of a page to files and headings of the repository that do not exist."""
    links = [link for link in LINK.findall(FENCED.sub("", page.read_text())) if "://" not in link]
    places = {link: (page.parent / link.partition("#")[0] if link[0] != "#" else page) for link in links}
    return [
        link
        for link, place in places.items()
        if not place.exists() or ("#" in link and link.partition("#")[2] not in anchors_of(place.read_text()))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    assert broken_links(page) == []


def test_link_to_a_missing_page_or_heading_is_named(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One, two\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](gone.md) [e](https://x.org)\n")

    assert broken_links(page) == ["#three", "gone.md"]


def wide_lines(text: str) -> list[int]:
    """The numbers of the lines of prose with more than WIDTH characters, without the targets of links."""
    prose = FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)
    shown = [re.sub(r"\]\(\S+\)", "]", line) for line in prose.splitlines()]
    other = ("|", "#", "<!--", "![")
    return [n for n, line in enumerate(shown, 1) if len(line) > WIDTH and not line.lstrip().startswith(other)]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_of_a_page_is_at_most_100_characters_wide(page):
    assert wide_lines(page.read_text()) == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_has_no_mark_of_a_merge(page):
    assert not re.search("^(<{7}|>{7}) ", page.read_text(), re.MULTILINE)


def test_only_prose_is_measured():
    wide, url = "a " * 60, f"[a](https://example.org/{'a' * 90})"

    assert wide_lines(f"{wide}\n| {wide}\n```\n{wide}\n```\n{url}\n{wide}\n") == [1, 7]


@pytest.mark.parametrize(
    "path", [path for path in PAGES if pages.STORY.search(path.read_text())], ids=lambda path: path.name
)
def test_story_in_a_page_is_the_one_that_its_command_prints(path):
    """If not: `python -m docs.make.pages` writes it again."""
    assert pages.with_stories(path.read_text()) == path.read_text()


def test_message_and_comment_of_the_product_names_files_that_exist():
    named = {(path, name) for path in PRODUCT for name in NAMED.findall(path.read_text())}

    assert [(str(path), name) for path, name in named if not (ROOT / name).exists()] == []


def test_pages_and_tables_of_findings_in_the_repository_are_those_of_the_files():
    """`python -m docs.make.pages` writes them; the README links the findings whose page is a file."""
    made, kept = pages.documents(), pages.kept()

    assert {path.stem for path in made if path.exists()} == kept
    assert {path: path.read_text() for path in made if path.exists()} == {
        path: text for path, text in made.items() if path.stem in kept
    }
    assert pages.with_tables(TABLES.read_text()) == TABLES.read_text()
    assert len(re.findall(r"\w\S*", TABLES.read_text())) <= MOST_WORDS_OF_TABLES


def test_tables_of_findings_have_each_public_bug():
    text = TABLES.read_text()

    assert [path.stem for path in pages.documents() if path.stem not in text] == []


def test_counts_of_known_bugs_in_the_pages_are_those_of_the_files():
    for page in (pages.ROOT / "README.md", pages.FINDINGS / "numbers.md"):
        assert pages.with_counts(page.read_text()) == page.read_text()


def test_tables_of_capabilities_are_those_of_the_parts_of_their_engines():
    """`python -m docs.make.pages` writes them."""
    tables = [page for page in PAGES if pages.PARTS.search(page.read_text())]

    assert tables
    assert [page.name for page in tables if pages.with_parts(page.read_text()) != page.read_text()] == []


def test_backtests_in_the_pages_are_those_that_ship():
    readme, releases = (pages.ROOT / name for name in ("README.md", "docs/releases.md"))

    assert pages.backtests_row() in readme.read_text().splitlines()
    assert pages.with_backtests(releases.read_text()) == releases.read_text()
    assert pages.BACKTEST.findall(releases.read_text()) == [*pages.BACKTESTED]
    pairs = [pair for name in pages.BACKTESTED for pair in shipped_pairs(name)]
    assert max(cost_of([pair]).cpu_seconds for pair in pairs) <= MOST_CPU_S


def test_document_of_a_known_bug_has_no_word_that_only_swarden_knows():
    laws = "|".join(story.CLAIMS)

    documented = {bug.name for engine in pages.ENGINES for bug in pages.own_bugs(engine) if bug.document is not None}

    for text in (text for path, text in pages.documents().items() if path.stem in documented):
        assert re.findall(rf"\b(?:op-logs?|fingerprints?|laws?|adapters?|{laws})\b", text) == []


def test_table_of_the_outbox_is_that_of_its_files():
    """`python -m docs.make.outbox` writes it."""
    assert outbox.TABLE.read_text() == outbox.page()


def test_each_text_of_the_outbox_has_one_place_in_the_order_of_posting():
    places = [name for wave in tomllib.loads(outbox.ORDER.read_text()).values() for name in wave]

    assert sorted(places) == sorted(outbox.posted())


def test_text_of_the_outbox_is_short_and_has_no_word_of_ours():
    names = {bug.name for engine in pages.ENGINES for bug in pages.own_bugs(engine)}
    ours = re.compile(rf"\b(recorded run|this log|op-logs?|fingerprints?|{'|'.join(names)})\b")
    programs = {name: f"{CASE}calls" * (shown["program"] != "none") for name, shown in pages.results().items()}
    texts = {name: issue(bug, target_of(engine), programs[name]) for name, (bug, engine) in outbox.posted().items()}
    words = {name: len(NOT_COUNTED.sub("", text).split()) for name, text in texts.items()}

    assert {name: count for name, count in words.items() if count > MOST_WORDS} == {}
    assert {name: ours.findall(text) for name, text in texts.items() if ours.search(text)} == {}


def test_output_in_a_text_of_the_outbox_is_that_of_the_run_of_its_program():
    shown = pages.results()
    texts = {name: bug.document for name, (bug, _) in outbox.posted().items() if bug.document is not None}
    printed = {name: about.prints for name, about in texts.items() if about.prints and not about.proof}

    assert printed == {name: shown[name]["output"] for name in printed}


def test_torch_of_an_issue_is_the_locked_one():
    locked = re.search(r"^torch==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)

    assert locked is not None
    assert f"torch {locked[1]} " in PYTHON


def test_public_bug_of_the_outbox_has_a_sentence_for_each_of_one_to_three_places():
    documents = {name: bug.document for name, (bug, _) in outbox.posted().items() if bug.document is not None}

    assert [name for name, about in documents.items() if not about.client] == []
    assert [name for name, about in documents.items() if not all(place.says for place in about.code)] == []
    assert [name for name, about in documents.items() if len(about.code) > MOST_PLACES] == []


def test_page_of_the_site_links_pages_and_files_of_the_site_alone():
    text = "[a](../README.md#x) [b](cli.md) [c](../harness/kit) [d](finding.txt) `e` `f`\n```\n[g](../README.md)\n```\n"

    page = site.on_site(text, PurePosixPath("docs/some.md"), {"e"})

    assert page == (
        "[a](../index.md#x) [b](cli.md) c [d](finding.txt) [`e`](findings/e.md) `f`\n```\n[g](../README.md)\n```\n"
    )
    assert [*site.files_of(page, PurePosixPath("docs/some.md"))] == ["docs/finding.txt"]


def test_script_or_font_of_another_host_in_a_page_is_named():
    loads = '<script src="https://a.org/x.js"></script><link href="//b.org/y.css"><img src="z.png"> url(https://c.org/f.woff)'

    assert site.foreign(f'<a href="https://d.org">d</a>{loads}') == [
        "https://a.org/x.js",
        "//b.org/y.css",
        "https://c.org/f.woff",
    ]


def test_page_in_the_picture_is_the_one_that_is_made():
    """If not: `python -m docs.make.pages --picture` draws it again."""
    assert pages.text_in_picture(pages.page_in_picture()) == pages.TEXT.read_text()


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    zizmor = Path(sys.executable).with_name("zizmor")
    command = [str(zizmor), "--offline", "--no-progress", "--quiet", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.name)
def test_workflow_passes_the_linter(path):
    run = lint(path)

    assert run.returncode == 0, run.stdout + run.stderr


def test_linter_refuses_an_action_that_is_not_pinned_and_an_input_in_a_script(tmp_path):
    for healthy, broken in ((r"@[0-9a-f]{40}", "@v4"), ('run.sh" drive', 'run.sh" drive ${{ inputs.engine }}')):
        (tmp_path / "action.yml").write_text(re.sub(healthy, broken, ACTION.read_text(), count=1))

        assert lint(tmp_path / "action.yml").returncode != 0


def test_workflow_of_the_site_publishes_what_make_docs_builds():
    text = SITE.read_text()

    assert "run: make docs\n" in text
    assert "path: build/docs/html\n" in text


def test_readme_is_short_and_its_first_screen_has_the_two_commands_of_a_fresh_machine():
    page = (ROOT / "README.md").read_text()
    prose = [line for line in FENCED.sub("", page).splitlines() if not line.startswith(("|", "![", "<!--", "```"))]
    lines = page.splitlines()
    starts = [next(n for n, line in enumerate(lines) if line.startswith(start)) for start in FIRST_SCREEN]

    assert len(lines) <= 130
    assert len(re.sub(r"\]\([^)]*\)", "]", " ".join(prose)).split()) <= 800
    assert starts == sorted(starts)
    assert starts[-1] < 25
    assert f"{sum('.laws.' in law.find.__module__ for law in ALL.invariants)} laws" in page
    assert "\nmake test\n" in (ROOT / ".ci/run").read_text()
