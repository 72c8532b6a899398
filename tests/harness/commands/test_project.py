"""The options of commands in the table [tool.swarden] of a project's pyproject.toml."""

import json
import shlex

import pytest

from swarden.harness.commands.project import OPTIONS, with_project
from swarden.harness.core.errors import UsageError
from tests.harness.some_commands import swarden

TABLE = """
[tool.swarden]
engine = ["demo", "swarden"]
profile = "smoke"
minutes = 2
archive = "nights"
set = { page_size = 4, overlap = false, name = "a b" }
"""
FUZZ = "fuzz --engine demo --engine swarden --profile smoke --minutes 2"
SET = """--set page_size=4 --set overlap=false --set 'name="a b"'"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes the pyproject.toml of the present folder."""
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "pyproject.toml").write_text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("fuzz", f"{FUZZ} {SET}", id="all"),
        pytest.param("fuzz --set page_size=8 --seed 1", f"{FUZZ} --set page_size=8 --seed 1", id="set"),
        pytest.param(
            "nightly --engine=demo", "nightly --profile smoke --minutes 2 --archive nights --engine=demo", id="given"
        ),
        pytest.param(
            "fuzz --engine demo", "fuzz --profile smoke --minutes 2 --engine demo", id="settings-are-of-the-engine"
        ),
        pytest.param("fuzz --help", "fuzz --help", id="help"),
        pytest.param("fuzz --url http://x", "fuzz --profile smoke --minutes 2 --url http://x", id="server"),
        pytest.param("archive show NAME", "archive show --archive nights NAME", id="command-of-a-command"),
        pytest.param("replay a.oplog", "replay a.oplog", id="other-command"),
        pytest.param("", "", id="no-command"),
    ],
)
def test_options_of_the_project_stand_behind_the_command_unless_they_are_given(project, line, expected):
    project(TABLE)

    assert shlex.join(with_project(line.split())) == expected


def test_project_without_the_table_has_no_options(project):
    project("[project]\nname = 'x'\n")

    assert [with_project(words) for words in OPTIONS] == [list(words) for words in OPTIONS]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("minutes = 'many'", 'minutes is "many", want float', id="type"),
        pytest.param("restart = 'rm -r x'", "unknown argument restart", id="command"),
        pytest.param("engine = 'toaster'", "'toaster' is not installed; installed are ", id="engine"),
        pytest.param("engine = 'demo; ls'", 'engine is "demo; ls", want str', id="no-name"),
        pytest.param("archive = '../x'", "'../x' is not below this folder", id="archive"),
        pytest.param("x = ", "not TOML", id="syntax"),
        pytest.param("set = { a = 2024-01-01 }", "set.a is", id="date"),
        pytest.param("minutes = 2024-01-01", 'minutes is "2024-01-01", want', id="date-for-a-number"),
        pytest.param('set."a.b" = 1', "set has 'a.b', want", id="dotted-key"),
        pytest.param("set.a = " + "[" * 99999, "not TOML: maximum recursion depth", id="deep"),
        pytest.param("minutes = " + "9" * 5000, "not TOML: Exceeds the limit", id="digits"),
        pytest.param("tool = 3", "unknown argument tool", id="tool"),
    ],
)
def test_mistake_in_the_table_is_one_line(project, text, message):
    project(f"[tool.swarden]\n{text}\n")

    with pytest.raises(UsageError, match=r"^pyproject\.toml: .*; correct it$") as raised:
        with_project(["fuzz"])

    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["tool = 3", "x = " + "[" * 5000, "x = " + "9" * 5000, "x = ", "\0"])
def test_file_without_our_name_is_not_ours_whatever_it_is(project, text):
    project(text)

    assert with_project(["fuzz"]) == ["fuzz"]


def test_archive_of_the_table_may_not_be_a_link_out_of_the_folder(project, tmp_path):
    (tmp_path / "nights").symlink_to("/tmp")
    project(TABLE)

    with pytest.raises(UsageError, match=r"^pyproject\.toml: .* 'nights' is not below this folder"):
        with_project(["archive", "list"])


def test_engine_of_the_table_does_not_matter_if_another_is_given(project):
    project("[tool.swarden]\nengine = 'toaster'\nminutes = 1\n")

    assert with_project(["fuzz", "--engine=demo"]) == ["fuzz", "--minutes", "1", "--engine=demo"]


def test_printed_command_repeats_the_options_of_the_project(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.swarden]\nengine = 'demo'\nprofile = 'smoke'\n")

    run = swarden("fuzz", "--runs", 2, "--workers", 1, "--seed", 5, "--json", cwd=tmp_path)

    command = "swarden fuzz --engine demo --profile smoke --runs 2 --workers 1 --seed 5"
    assert json.loads(run.stdout)["command"] == command, run.stderr
