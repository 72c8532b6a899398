"""Programs from templates: a value is a literal, whatever it holds."""

import ast

import pytest

from swarden.harness.core.program import Program
from swarden.harness.report.program import literal, program_text

HOSTILE = [
    "'); import os; os.abort(); ('",
    '"""\nraise SystemExit\n"""',
    "\\' + exit() + \\'",
    "{{ 7 * 7 }} {% raw %}",
    "# \r\n\u2028\x00",
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_looks_like_code_stays_a_string(text, tmp_path):
    template = tmp_path / "t.j2"
    template.write_text("{{ title }}\nVALUES = {{ values }}\n# {{ title }}\n")

    first, second = ast.parse(program_text(Program(template, {"title": text, "values": {text: [text, (text,)]}}))).body

    assert isinstance(first, ast.Expr)
    assert isinstance(second, ast.Assign)
    assert ast.literal_eval(first.value) == text
    assert ast.literal_eval(second.value) == {text: [text, (text,)]}


@pytest.mark.parametrize(
    "value",
    [[1, 2, 3, 4, 5, 9, 10, 7, 7], [], [5], [True, 1], -3, 0.25, None, {"a": [[1, 2], ()]}, list(range(100))],
    ids=str,
)
def test_literal_has_the_value(value):
    assert eval(literal(value), {"range": range}) == value


@pytest.mark.parametrize(
    "value", [object(), [object()], {"a": {1, object()}}, type("Sly", (int,), {})(3), float("nan")]
)
def test_value_that_is_no_plain_data_is_refused(value):
    with pytest.raises(TypeError, match="no plain data"):
        literal(value)
