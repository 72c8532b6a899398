"""Programs from templates: a value is a literal, whatever it holds."""

import ast
import subprocess
import sys
from itertools import product
from typing import Any

import pytest

from docs.make.pages import ROOT
from swarden.harness.core.program import Program, literal
from swarden.harness.report.program import program_text

HOSTILE = [
    "'); import os; os.abort(); ('",
    '"""\nraise SystemExit\n"""',
    "\\' + exit() + \\'",
    "{{ 7 * 7 }} {% raw %}",
    "# \r\n\u2028\x00",
    "\ud800",
]

WORKER = ROOT / "harness/engines/vllm/standalone/worker.py"
# An option of the command line instead would leave none of what `make types` has kept for both.
FOR_MYPY = "# mypy: allow-subclassing-any\n"

SOURCE = """\
\"\"\"What it needs.\"\"\"

import json
import sys

import torch
from swarden.harness.kit.standalone import run_script

VALUES: dict = {}  # of the case
HAS_PARTS = IS_TEST = False


# --- the case
def test_finding():
    engine = Engine()
    engine.finish()


def unused():
    sys.exit(7)


class Engine:
    def add(self, text, count: int = 1):
        # why
        if HAS_PARTS:
            torch.load(text)
        elif count:
            json.dumps(VALUES)

    def left_out(self):
        unused()

    def finish(self): ...


if not IS_TEST:
    if __name__ == "__main__":
        run_script(test_finding)
"""


OTHER, RELEASED = "not run to the end: another symptom", {"BUG": {"take": "AssertionError"}}
CHECKED = """\
\"\"\"What it needs.\"\"\"

import release
from swarden.harness.kit.standalone import run_script


def test_finding():
    release.take()
    take()


def take():
    assert False, "a token is lost"


run_script(test_finding)
"""


@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_looks_like_code_stays_a_string(text, tmp_path):
    source = tmp_path / "source.py"
    source.write_text(SOURCE)
    program = Program(source, {"VALUES": {text: [text, (text,)]}}, [{"name": "add", "args": [text], "count": 2}])

    body: Any = ast.parse(program_text(program, text, "1.0")).body

    assert ast.literal_eval(body[0].value) == text
    [values] = [node.value for node in body if ast.unparse(node).startswith("VALUES")]
    assert ast.literal_eval(values) == {text: [text, (text,)]}
    [case] = [node for node in body if getattr(node, "name", "") == "test_finding"]
    assert [ast.literal_eval(arg) for arg in case.body[1].value.args] == [text]


@pytest.mark.parametrize("is_test", [True, False])
@pytest.mark.parametrize(("has_parts", "left"), [(True, "torch.load(text)"), (False, "if count:")])
def test_program_has_what_its_case_reaches_in_the_branches_that_are_taken(has_parts, left, is_test, tmp_path):
    source = tmp_path / "source.py"
    source.write_text(SOURCE)
    calls = [{"name": "add", "args": ["a"]}]

    program = Program(source, {"HAS_PARTS": has_parts}, calls)
    text = program_text(program, "It fails", "vllm==1.0", is_test=is_test)

    compile(text, "program", "exec")
    assert text.startswith('"It fails"\n\n# vllm==1.0\n#')
    assert [part in text for part in ("import sys", "sys.exit", "Exit code", "__main__")] == [not is_test] * 4
    assert '    engine.add("a")\n    engine.finish()\n' in text
    assert f"        {left}\n" in text
    assert ("import torch" in text, "import json" in text) == (has_parts, not has_parts)
    assert "HAS_PARTS" not in text
    assert "unused" not in text
    assert "left_out" not in text


@pytest.mark.parametrize(
    ("of_release", "constants", "ended"),
    [
        pytest.param("pass", {"CHECKS": ["take"]}, (1, "BUG: a token is lost"), id="check"),
        pytest.param("assert 0", {"CHECKS": ["take"]}, (2, OTHER), id="release-function-so-named"),
        pytest.param("assert 0", RELEASED, (1, "BUG: AssertionError in take"), id="release"),
        pytest.param("pass", RELEASED, (2, OTHER), id="own-so-named"),
    ],
)
@pytest.mark.parametrize("is_optimised", [False, True])
def test_program_shows_its_bug_by_where_it_fails(of_release, constants, ended, is_optimised, tmp_path):
    (tmp_path / "source.py").write_text(CHECKED)
    (tmp_path / "release.py").write_text(f"def take(): {of_release}")
    program = Program(tmp_path / "source.py", constants)
    path = tmp_path / "program.py"
    path.write_text(program_text(program, "It fails", "1.0"))

    ran = subprocess.run([sys.executable, *["-O"] * is_optimised, path], capture_output=True, text=True)

    code, said = (2, "not run: asserts are off") if is_optimised else ended
    assert ran.returncode == code
    assert (ran.stdout + ran.stderr).splitlines()[-1].startswith(said)


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


def test_program_is_formatted_and_has_its_types(tmp_path):
    """With all parts of its source, and with as few as there can be."""
    programs = []
    for path, value in product(sorted(ROOT.glob("harness/engines/*/standalone/[a-z]*.py")), (True, False)):
        nodes = [node for source in (path, WORKER) for node in ast.parse(source.read_text()).body]
        flags = [node for node in nodes if isinstance(node, ast.Assign) and "False" in ast.unparse(node.value)]
        constants: dict[str, Any] = {
            target.id: value for node in flags for target in node.targets if isinstance(target, ast.Name)
        }
        constants |= dict.fromkeys(("DRAFT_LEN", "EXTERNAL_LEN", "STATE_CHUNK_LEN"), int(value))
        further = {"CHECKS": ["read"], "BUG": {"step": "KeyError"}}
        programs.append(tmp_path / f"of_{path.parents[1].name}_{path.stem}_{value}.py")
        text = program_text(Program(path, constants | further), "It fails", "1.0", is_test=value)
        programs[-1].write_text(FOR_MYPY + text)

    for command in (["ruff", "format", "--check", "--isolated", "--line-length", "120"], ["mypy"]):
        ran = subprocess.run([sys.executable, "-m", *command, *programs], cwd=ROOT, capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
