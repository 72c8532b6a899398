"""The exit codes of `swarden bench`: wrong outputs are a violation."""

import json
from functools import partial

import pytest

from swarden.harness.bench.serving import SHAPES
from swarden.harness.engines.own.mutants.catalog import BY_ID
from tests.harness.some_commands import swarden


@pytest.fixture
def speculation(monkeypatch, tmp_path):
    """Measures the smallest checkpoint once."""
    monkeypatch.delitem(SHAPES, "100m")
    return partial(swarden, "bench", "--part", "speculation", "--pairs", 1, cwd=tmp_path)


def test_unequal_outputs_are_a_violation(speculation):
    with BY_ID["S162"].planted():
        measured = speculation()

    assert measured.returncode == 1
    assert measured.stdout.splitlines()[-1].startswith("wrong: speculation, tiny: ")


def test_equal_outputs_are_clean(speculation):
    measured = speculation("--json")

    assert measured.returncode == 0
    assert json.loads(measured.stdout)["wrong"] == []
