"""Long texts on a terminal of 80 columns, and in a pipe; pages that are opened."""

import io
from pathlib import Path

import pytest

from swarden.harness.commands.console import PrintableConsole
from tests.harness.some_processes import swarden_process

B18 = Path(__file__).parents[2] / "quality" / "oplogs" / "B18.oplog"
LONG = 2 * "1 run of random traffic for swarden, machine engine, on 1 worker; Ctrl-C ends it early and keeps findings."


def lines_of(*, is_terminal, **options):
    """The lines of LONG in a stream of 80 columns."""

    class Stream(io.StringIO):
        def isatty(self):
            return is_terminal

    stream = Stream()
    PrintableConsole(file=stream, width=80, soft_wrap=True, highlight=False).print(LONG, markup=False, **options)
    return stream.getvalue().splitlines()


def test_long_text_on_a_terminal_is_broken_between_words():
    lines = lines_of(is_terminal=True)

    assert [word for line in lines for word in line.split()] == LONG.split()
    assert 40 < min(map(len, lines[:-1])) <= max(map(len, lines)) <= 80


def test_long_text_in_a_pipe_and_a_command_to_copy_stay_one_line():
    assert lines_of(is_terminal=False) == [LONG]
    assert lines_of(is_terminal=True, soft_wrap=True) == [LONG]


@pytest.mark.parametrize(
    ("browser", "remark"),
    [
        pytest.param("ln -s %s opened", "", id="browser"),
        pytest.param("no-such-browser", "--open: no browser was found; open the page by hand\n", id="none"),
    ],
)
def test_page_is_opened_in_a_browser_if_there_is_one(tmp_path, browser, remark):
    run = swarden_process("show", B18, "--html", "-o", "page.html", "--open", cwd=tmp_path, BROWSER=browser)

    assert (run.returncode, run.stdout) == (0, "written: page.html\n")
    assert run.stderr == f"{B18}: running 3 ops twice, after loading swarden\n{remark}"
    assert (tmp_path / "opened").is_symlink() is not bool(remark)
