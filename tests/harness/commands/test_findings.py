"""swarden findings: the table, the page of a finding, and what is refused."""

import pytest

from docs.make.pages import FINDINGS, documents
from swarden.harness.report.page import page_of_text
from tests.harness.report.html import parsed
from tests.harness.some_bugs import OF_BLOCKS, USELESS, swarden_with_bugs
from tests.harness.some_commands import swarden

NAME = "prompt-never-admitted"


def test_table_has_each_public_finding_of_the_engine(tmp_path):
    run = swarden("findings", "--engine", "sglang", cwd=tmp_path)
    every = swarden("findings", cwd=tmp_path)

    assert (run.returncode, run.stderr) == (0, "")
    assert f" {NAME} " in run.stdout
    assert "whole-prompt-load-misses-a-window-block" not in run.stdout
    assert [path.stem for path in documents() if f" {path.stem} " not in every.stdout] == []


def test_narrow_table_has_two_lines_for_a_finding(tmp_path):
    run = swarden("findings", "--engine", "sglang", cwd=tmp_path, COLUMNS="80")

    lines = run.stdout.splitlines()
    place = lines.index(f"{NAME} >=0.5.11,<=0.5.23, comment on pull 29249")
    assert lines[place + 1] == "    the server stops answering; needs: windowed model"


def test_page_is_that_of_the_documents_but_for_the_folder_of_its_op_logs(tmp_path):
    run = swarden("findings", NAME, cwd=tmp_path)

    def without_links(text):
        return [line for line in text.splitlines() if ".oplog](" not in line]

    assert run.returncode == 0
    assert without_links(run.stdout) == without_links(documents()[FINDINGS / f"{NAME}.md"])


def test_finding_of_another_package_has_a_page_without_links(tmp_path):
    run_swarden = swarden_with_bugs(tmp_path)

    run = run_swarden("findings", OF_BLOCKS)

    assert run.returncode == 0, run.stderr
    assert "| upstream | pull 7 (open): fixes it |" in run.stdout
    assert "## Cause\n\nA condition of the admission." in run.stdout
    assert USELESS in run_swarden("findings", "--engine", "blockserve").stdout


def test_page_of_html_is_written_beside_its_name(tmp_path):
    run = swarden("findings", NAME, "--html", cwd=tmp_path)

    page = parsed((tmp_path / f"{NAME}.html").read_text())
    assert (run.returncode, run.stdout) == (0, f"written: {NAME}.html\n")
    assert page.all("h1")[0].text == "A prompt that nearly fills the KV pool is never admitted and blocks the queue"
    assert [page.all(tag) for tag in ("script", "link", "img")] == [[]] * 3


def test_html_and_scripts_of_a_text_are_escaped():
    page = parsed(page_of_text("a", "<img src=x> [b](javascript:alert(1)) \x1b[2J"))

    assert (page.all("img"), page.all("a")) == ([], [])
    assert "\x1b" not in page.all("article")[0].text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prompt-newer-admitted"], f"prompt-newer-admitted: no finding; close to it: {NAME}"),
        (["zzz"], "zzz: no finding; 'swarden findings' lists them"),
        (["--engine", "swarden"], "--engine: swarden has no findings; name one of lmdeploy, "),
        (["--html"], "--html: is the page of one finding; name it"),
        ([NAME, "--open"], "--open: opens a page; add --html"),
        ([NAME, "--html", "-o", "."], "--out: . is a folder; name a file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistake_is_one_line(arguments, said, tmp_path):
    run = swarden("findings", *arguments, cwd=tmp_path)

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"swarden: {said}")
    assert len(run.stderr.splitlines()) == 1
