"""The help of each command, in 80 columns."""

import re

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from swarden.harness.cli import COMMANDS, app

NAMES = [name for commands in COMMANDS.values() for name in commands]
TITLE = re.compile(r"╭─ (.+?) ─+╮\n(.*?)╰", re.DOTALL)


def help_of(*words):
    """The help of a command that these words name, without colours, which a terminal or a CI service can ask for."""
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)


def groups_of(text):
    """The names of the options or commands of a help, by the title of their group."""
    return {title: re.findall(r"^│ (\S+) ", rows, re.MULTILINE) for title, rows in TITLE.findall(text)}


def commands_below(name):
    main = get_command(app)
    assert isinstance(main, TyperGroup)
    _, command, _ = main.resolve_command(main.make_context("swarden", [name]), [name])
    return getattr(command, "commands", {})


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_neither_types_nor_bounds(name):
    texts = [help_of(name), *(help_of(name, below) for below in commands_below(name))]

    assert [re.findall(r"<[^>]+>|x[<>]=", text) for text in texts] == [[] for _ in texts]


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_flag_of_the_main_help_has_no_value(flag):
    assert re.search(rf"{flag} +(print|Show)", help_of())


def test_help_of_fuzz_has_the_options_that_matter_first():
    groups = groups_of(help_of("fuzz"))

    assert list(groups) == ["Options", "Traffic", "Limits", "Findings", "Output", "Server"]
    assert set(groups["Options"]) == {"--engine", "--minutes", "--profile", "--seed", "--workers", "--help"}


def test_main_help_has_each_command_in_the_group_of_its_use():
    groups = groups_of(help_of())

    assert {title: groups[title] for title in COMMANDS} == {title: [*names] for title, names in COMMANDS.items()}


@pytest.mark.parametrize("words", ["fuzz --minutes 0", "fuzz --workers 0", "trace x --step-ms 0"])
def test_bound_that_help_does_not_show_is_enforced(words):
    assert CliRunner().invoke(app, words.split()).exit_code == 2
