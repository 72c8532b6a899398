"""The budget of lines of each folder, and of the product and of the tests as a whole.

A folder's number moves freely below the sums.  A sum goes down freely, and up only by what an issue grants.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Mapping

from tests.tidy import Module

PRODUCT, TESTS = 52_970, 43_170  # lines of code
# Lines of code by folder, without blank lines and docstrings.  A module counts for the innermost folder that is listed.
LINES: Mapping[str, int] = {
    "engine_under_test": 1_820,
    "engine_under_test/cache": 880,
    "engine_under_test/disaggregation": 1_150,
    "engine_under_test/host": 420,
    "engine_under_test/model": 2_340,
    "engine_under_test/pools": 370,
    "engine_under_test/scheduler": 1_050,
    "fakes": 340,
    "harness": 200,
    "harness/bench": 1_080,
    "harness/commands": 3_790,
    "harness/core": 3_720,
    "harness/engines/demo": 260,
    "harness/engines/lmdeploy": 990,
    "harness/engines/own": 1_870,
    "harness/engines/own/content": 360,
    "harness/engines/own/mutants": 2_190,
    "harness/engines/server": 1_590,
    "harness/engines/sglang": 4_920,
    "harness/engines/transformers": 1_100,
    "harness/engines/vllm": 4_070,
    "harness/engines/vllm_cpu": 780,
    "harness/front": 490,
    "harness/kit": 1_420,
    "harness/mutants": 320,
    "harness/nightly": 1_310,
    "harness/report": 1_160,
    "harness/search": 5_080,
    "harness/strict": 1_180,
    "harness/traces": 320,
    "invariants": 1_860,
    "invariants/contracts": 2_190,
    "invariants/laws": 2_340,
    "src": 170,
    "tests": 1_490,
    "tests/cuda": 640,
    "tests/engine_under_test": 10_710,
    "tests/engines": 3_080,
    "tests/examples": 410,
    "tests/fakes": 390,
    "tests/harness": 15_460,
    "tests/hostile": 770,
    "tests/invariants": 6_710,
    "tests/packaging": 110,
    "tests/quality": 2_910,
    "tests/real": 520,
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
    in_tests = sum(lines for folder, lines in counts.items() if f"{folder}/".startswith("tests/"))
    sums = {"the product": counts.total() - in_tests, "the tests": in_tests}
    budgets = {**LINES, "the product": PRODUCT, "the tests": TESTS}
    return [
        f"{folder}: {lines} lines of code, the budget is {budgets.get(folder, 0)}: delete some"
        for folder, lines in sorted((sums | counts).items())
        if lines > budgets.get(folder, 0)
    ]
