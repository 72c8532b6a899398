"""The exit codes of `swarden bench`: wrong outputs are a violation."""

import json

import pytest
import typer
from typer.testing import CliRunner

from swarden.harness.bench.generation import SHAPES
from swarden.harness.commands.bench import bench
from swarden.harness.engines.own.mutants.catalog import BY_ID


@pytest.fixture
def speculation(monkeypatch):
    """Measures the smallest checkpoint once."""
    monkeypatch.delitem(SHAPES, "100m")
    app = typer.Typer()
    app.command()(bench)
    return lambda *options: CliRunner().invoke(app, ["--part", "speculation", "--pairs", "1", *options])


def test_unequal_outputs_are_a_violation(speculation):
    with BY_ID["S162"].planted():
        measured = speculation()

    assert measured.exit_code == 1
    assert measured.stdout.splitlines()[-1].startswith("wrong: speculation, tiny: ")


def test_equal_outputs_are_clean(speculation):
    measured = speculation("--json")

    assert measured.exit_code == 0
    assert json.loads(measured.stdout)["wrong"] == []
