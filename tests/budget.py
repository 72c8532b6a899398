"""The budget of lines of each folder, and of the product and of the tests as a whole.

A folder's number moves freely below the sums.  A sum goes down freely, and up only by what an issue grants.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Mapping

from tests.tidy import Module

PRODUCT, TESTS = 53_890, 43_800  # lines of code
# Lines of code by folder, without blank lines and docstrings.  A module counts for the innermost folder that is listed.
LINES: Mapping[str, int] = {
    "docs/make": 530,
    "engine_under_test": 1_830,
    "engine_under_test/cache": 890,
    "engine_under_test/disaggregation": 1_160,
    "engine_under_test/host": 430,
    "engine_under_test/model": 2_350,
    "engine_under_test/pools": 380,
    "engine_under_test/scheduler": 1_060,
    "fakes": 350,
    "fakes/front": 500,
    "harness": 210,
    "harness/bench": 1_090,
    "harness/commands": 4_030,
    "harness/core": 3_730,
    "harness/engines/demo": 270,
    "harness/engines/lmdeploy": 1_000,
    "harness/engines/own": 1_840,
    "harness/engines/own/content": 370,
    "harness/engines/own/mutants": 2_200,
    "harness/engines/server": 1_560,
    "harness/engines/sglang": 4_980,
    "harness/engines/transformers": 1_100,
    "harness/engines/vllm": 4_100,
    "harness/engines/vllm_cpu": 790,
    "harness/kit": 1_520,
    "harness/nightly": 1_840,
    "harness/releases": 700,
    "harness/report": 1_290,
    "harness/search": 4_690,
    "harness/strict": 1_200,
    "harness/traces": 330,
    "invariants": 1_880,
    "invariants/contracts": 2_200,
    "invariants/laws": 2_320,
    "src": 180,
    "tests": 1_130,
    "tests/cuda": 650,
    "tests/engine_under_test": 10_720,
    "tests/engines": 3_150,
    "tests/examples": 420,
    "tests/fakes": 480,
    "tests/harness": 15_860,
    "tests/hostile": 790,
    "tests/invariants": 6_680,
    "tests/packaging": 110,
    "tests/quality": 2_910,
    "tests/real": 530,
}


def num_code_lines(module: Module) -> int:
    """The lines of a module that are neither blank nor of a docstring."""
    lines = {number for number, line in enumerate(module.source.splitlines(), start=1) if line.strip()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


def lines_by_folder(modules: Iterable[Module]) -> Counter[str]:
    """The lines of code for each folder of the budget; a module outside of all folders counts for its own path."""
    counts: Counter[str] = Counter()
    for module in modules:
        above = [folder for folder in LINES if module.path.startswith(f"{folder}/")]
        counts[max(above, key=len, default=module.path)] += num_code_lines(module)
    return counts


def over_budget(modules: Iterable[Module]) -> list[str]:
    """A line for each folder, and for each of the two sums, with more lines than its budget."""
    counts = lines_by_folder(modules)
    in_tests = sum(lines for folder, lines in counts.items() if f"{folder}/".startswith(("tests/", "docs/make/")))
    sums = {"the product": counts.total() - in_tests, "the tests": in_tests}
    budgets = {**LINES, "the product": PRODUCT, "the tests": TESTS}
    return [
        f"{folder}: {lines} lines of code, the budget is {budgets.get(folder, 0)}: delete some"
        for folder, lines in sorted((sums | counts).items())
        if lines > budgets.get(folder, 0)
    ]
