"""A user's file of mutants: each error in it is reported in one line."""

from pathlib import Path

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.core.mutant_file import check_mutant, mutant_of, mutants_of_environment
from swarden.harness.core.registry import OWN, target_of

HEAD = "from swarden.harness.core.mutant import Hunk, Mutant\n"
HUNKS = '(Hunk("swarden.engine_under_test.components:kept_len", "max(", "min("),)'


@pytest.fixture
def own(tmp_path: Path, monkeypatch) -> Path:
    path = tmp_path / "own.py"
    monkeypatch.setenv("SWARDEN_MUTANTS", str(path))
    return path


def test_mutant_of_a_user_file_is_known_by_any_id(own):
    own.write_text(f'{HEAD}ONE = Mutant("my own/1", "made up", {HUNKS}, ("stuck", "KeyError"))')

    mutant = mutant_of(target_of(OWN), "my own/1")

    check_mutant(target_of(OWN), mutant)
    assert list(mutants_of_environment(target_of(OWN)).values()) == [mutant]


def test_calls_of_a_user_file_are_its_mutants_in_order(own):
    """A mutant that also has a name counts once; the first has its hunk by keyword, the second has two hunks."""
    own.write_text(
        "from swarden.harness.core.mutant import Hunk, Mutants\n"
        'MINE = Mutants(machine="pd", model="tiny-gemma3")\n'
        'A = MINE.bug("a", "made up", at="m:f", healthy="1", broken="2", caught_by=("stuck",), machine="engine")\n'
        'MINE.bug("b", "made up", Hunk("m:f", "1", "2"), Hunk("m:g", "1", "2"), caught_by=("stuck",), overlooks=A)\n'
    )
    first = Mutant("a", "made up", (Hunk("m:f", "1", "2"),), ("stuck",), "engine", "tiny-gemma3")
    hunks = (Hunk("m:f", "1", "2"), Hunk("m:g", "1", "2"))

    mutants = mutants_of_environment(target_of(OWN))

    assert list(mutants.values()) == [first, Mutant("b", "made up", hunks, ("stuck",), "pd", "tiny-gemma3", first)]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f'{HEAD}ONE = Mutant("B14", "made up", {HUNKS}, ("stuck",))', "{path}: mutant B14 is in the catalogue"),
        (f'{HEAD}ONE, TWO = (Mutant("one", name, {HUNKS}, ("stuck",)) for name in "ab")', "{path}: mutant one is"),
        (
            f"{HEAD}from swarden.harness.core.mutant import Mutants\nMINE = Mutants()\n"
            'for source in "ab":\n    MINE.bug("one", source, caught_by=("stuck",))',
            "{path}: mutant one is there twice; give one of them another id",
        ),
        (
            'from swarden.harness.core.mutant import Mutants\nMutants().bug("one", "made up", at="m:f")',
            "{path}:2: TypeError: mutant one: caught_by is missing; name the laws that detect it",
        ),
        ("", "{path}: has no Mutant at module level"),
        ("1 +", "{path}:1: invalid syntax"),
        ("\nimport no_such_module", "{path}:2: No module named 'no_such_module'"),
        ("\nraise OSError('a\\nb')", "{path}:2: OSError: a b"),
        ("import sys; sys.exit()", "{path}:1: SystemExit"),
        ("class Mute(Exception):\n    __str__ = None\nraise Mute", "{path}:3: Mute: <exception str() failed>"),
        ("class Skip(BaseException): ...\nraise Skip('x')", "{path}:2: Skip: x"),
    ],
)
def test_error_in_a_mutant_file_names_the_file(own, source, message):
    own.write_text(source)

    with pytest.raises(UsageError) as raised:
        mutants_of_environment(target_of(OWN))

    assert str(raised.value).startswith(message.format(path=own))


def test_error_of_a_missing_mutant_file_names_the_file(own):
    with pytest.raises(UsageError) as raised:
        mutants_of_environment(target_of(OWN))

    assert str(raised.value) == f"{own}: cannot be read: No such file or directory; name a Python file with mutants"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (f'{HUNKS}, ("outputs_equal",)', "caught_by has 'outputs_equal', which is neither an invariant nor an"),
        (f"{HUNKS}, ()", "caught_by is empty; name the laws that may detect it"),
        (f'{HUNKS}, "stuck"', "Expected `array`, got `str` - at `$.caught_by`"),
        (f'{HUNKS}, ("stuck",), machine="toaster"', "machine 'toaster' is not one of 'engine', "),
        (f'{HUNKS}, ("stuck",), model="huge"', "model 'huge' is not one of '', "),
    ],
)
def test_error_of_an_invalid_mutant_names_the_reason(own, arguments, message):
    own.write_text(f'{HEAD}ONE = Mutant("one", "made up", {arguments})')

    with pytest.raises(UsageError) as raised:
        check_mutant(target_of(OWN), mutant_of(target_of(OWN), "one"))

    assert str(raised.value).startswith(f"mutant one: {message}")
