"""Regular expressions take a time that grows with the text alone: no repeat gives back what it has matched."""

import ast
import re
from pathlib import Path

import pytest

CODE = Path(__file__).parents[1] / "harness"
CLASS_OR_ESCAPED = re.compile(r"\[\^?\]?[^]]*+\]|\\.")
GIVES_BACK = re.compile(r"(?<![*+?}])[*+](?!\+|[)?$]*+$)")  # a repeat that is not possessive, with more behind it
# By file, the texts of patterns with such repeats, which are short, or in which each repeat ends at another character.
TEXTS = {
    "core/imports.py": "the metadata of swarden",
    "core/origins.py": "names of our files of code",
    "core/releases.py": "versions",
    "engines/server/masking.py": "the command of --restart",
    "releases/definitions.py": "the code of an engine",
    "releases/reads.py": "the code of an engine",
    "kit/constructed.py": "names of classes",
    "kit/locks.py": "names of methods",
    "report/decisions.py": "names of our files of code",
    "report/history.py": "our own story",
    "search/keys.py": "names of our files of code",
}


def has_repeats_that_give_back(source: str) -> bool:
    """Whether a pattern in the code has; `import re` is the one way to get it."""
    tree = ast.parse(source if "import re\n" in source else "")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    first = [call.args[0] for call in calls if ast.unparse(call.func).startswith("re.")]
    texts = [str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node) for node in first]
    return any(GIVES_BACK.search(CLASS_OR_ESCAPED.sub("x", text)) for text in texts)


def test_patterns_of_text_from_outside_do_not_give_back():
    found = {str(file.relative_to(CODE)) for file in CODE.rglob("*.py") if has_repeats_that_give_back(file.read_text())}

    assert found == {*TEXTS}


@pytest.mark.parametrize(
    ("pattern", "gives_back"),
    [(r"(\w+)=", True), (r"^(\{.*\})? (\S+)$", True), (r"\S*?(\w*)$", True), (r"a\+b(\w++)=", False), (r"\W+", False)],
)
def test_patterns_that_give_back_are_found(pattern, gives_back):
    assert has_repeats_that_give_back(f"import re\nre.compile({pattern!r})") == gives_back
