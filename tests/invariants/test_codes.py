"""Codes and their sentences: each code is one of its own, and is found with the values that its sentence names."""

import ast
import inspect
from pathlib import Path
from string import Formatter

import pytest

from swarden import invariants
from swarden.invariants.violation import Code
from tests.invariants.test_invariants import CASES

KINDS = [kind for kind in Code.__subclasses__() if kind.__module__.startswith(f"{invariants.__name__}.")]
CODES = {f"{kind.__name__}.{name}": code for kind in KINDS for name, code in kind.__members__.items()}
FILES = {kind.__module__: Path(inspect.getfile(kind)) for kind in KINDS}


def places(code):
    return {name for _, name, _, _ in Formatter().parse(code.sentence) if name is not None}


def without_values(path):
    """The codes, and what their sentences name and a call of `found` there does not give; a call with ** is skipped."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    for call in calls:
        given = {keyword.arg for keyword in call.keywords}
        if ast.unparse(call.func) == "found" and None not in given:
            named = CODES.keys() & {ast.unparse(node) for node in ast.walk(call.args[1])}
            yield from ((name, missing) for name in named if (missing := places(CODES[name]) - given))


def test_codes_with_equal_sentences_are_two():
    assert [name for name, code in CODES.items() if f"{type(code).__name__}.{code.name}" != name] == []


def test_every_code_is_found_in_a_case():
    """A case has each code, so its sentence can be filled in: see test_wording.py."""
    assert set(CODES.values()) == {found.code for case in CASES for found in case.evidence}


@pytest.mark.parametrize("path", FILES.values(), ids=FILES)
def test_values_in_the_sentence_of_a_code_are_given_wherever_it_is_found(path):
    assert list(without_values(path)) == []
