"""The changed lines between two source trees, and the counters that note which of them run."""

import importlib
import sys

import pytest

from swarden.harness.core.changed_code import difference
from swarden.harness.core.counters import Counters

BASE = '''
from functools import wraps
LIMIT = 4

def twice(function):
    @wraps(function)
    def called(*args):
        result = function(*args)
        return result * 2
    return called

class Scale:
    unit = "g"

    @twice
    def weigh(self, load, most=9):
        """The weight of a load."""
        if load > 5:
            total = load
            total += 1
        else:
            total = -load
        try:
            return total // load
        except ZeroDivisionError:
            return self.unit * 0
'''


def change_of(folder, before, after):
    """The changed lines of a package with this replacement in its one module; the head is in the folder `head`."""
    assert BASE.count(before) == 1
    for root, text in (("base", BASE), ("head", BASE.replace(before, after))):
        (folder / root / "scales").mkdir(parents=True)
        (folder / root / "scales/one.py").write_text(text)
    return difference(folder / "base", folder / "head", "scales").lines


def told(change):
    return [f"{one.function.removeprefix('scales.one:')}: {one.text} {one.removed}".strip() for one in change]


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        pytest.param("load > 5", "load > 6", ["Scale.weigh: if load > 6:"], id="condition-alone"),
        pytest.param("total = load\n            ", "", ["Scale.weigh: total += 1 total = load"], id="removed"),
        pytest.param("            total += 1\n", "", ["Scale.weigh: total = load total += 1"], id="last-one-removed"),
        pytest.param("else:\n            total", "\n        total", ["Scale.weigh: total = -load"], id="else"),
        pytest.param("most=9", "most=8", ["Scale.weigh: def weigh(self, load, most=8):"], id="default"),
        pytest.param('unit = "g"', 'unit = "t"', [': unit = "t"'], id="class-body"),
        pytest.param("def weigh", "def balance", [], id="renamed-function"),
        pytest.param("load, most=9)", "load: int, most: int = 9)", [], id="annotations"),
        pytest.param("The weight of a load.", 'Weight."""\n\n        # of a load\n        """', [], id="no-code"),
    ],
)
def test_statements_are_compared(tmp_path, before, after, lines):
    assert told(change_of(tmp_path, before, after)) == lines


def test_renamed_file_is_followed_with_its_functions_and_a_new_one_is_all_its_statements(tmp_path):
    change_of(tmp_path, "total = load", "total = 2")
    head = tmp_path / "head/scales"
    (head / "one.py").rename(head / "two.py")
    (head / "new.py").write_text("def three():\n    if one:\n        return 1\n    return 3\n")

    change, renamed = difference(tmp_path / "base", tmp_path / "head", "scales")

    assert [f"{one.path}:{one.number}" for one in change] == [
        *("scales/new.py:2", "scales/new.py:3", "scales/new.py:4"),
        "scales/two.py:19",
    ]
    assert renamed["two.Scale.weigh"] == "one.Scale.weigh"


@pytest.fixture
def head(tmp_path, monkeypatch):
    """Imports the head in a folder, and forgets it behind the test."""
    monkeypatch.syspath_prepend(tmp_path / "head")
    yield lambda: importlib.import_module("scales.one")
    for name in ("scales.one", "scales"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("replaced", "load", "ran"),
    [
        pytest.param(("total = load", "total = 2"), 6, {0}, id="branch-taken"),
        pytest.param(("total = load", "total = 2"), 5, set(), id="branch-not-taken"),
        pytest.param(("ZeroDivisionError", "(ZeroDivisionError, KeyError)"), 1, {0}, id="handler-runs-with-its-try"),
        pytest.param(("most=9", "most=8"), 1, {0}, id="default-of-a-decorated-method"),
        pytest.param(("result * 2", "result + result"), 1, {0}, id="in-a-closure-that-is-made-already"),
        pytest.param(("LIMIT = 4", "LIMIT = 5"), 1, {0}, id="constant-runs-on-import"),
    ],
)
def test_changed_line_that_runs_is_noted_and_changes_nothing(tmp_path, head, replaced, load, ran):
    change = change_of(tmp_path, *replaced)
    scale = head().Scale()
    weigh, expected = scale.weigh.__code__, scale.weigh(load)

    with Counters(change).planted() as counters:
        result = scale.weigh(load)

    assert (result, {*counters.coverage.ran}, {*counters.coverage.followed}) == (expected, ran, {0})
    assert scale.weigh.__code__ is weigh


def test_lines_of_a_module_are_followed_in_the_first_run_behind_its_import(tmp_path, head):
    change = change_of(tmp_path, "total = load", "total = 2")

    with Counters(change).planted() as counters:
        assert not counters.coverage.imported
        scale = head().Scale()
        counters.begin()
        scale.weigh(6)
        assert counters.coverage.ran == {0}
        counters.begin()
        assert not counters.coverage.ran
