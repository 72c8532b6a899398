"""The budget of lines of each folder, and of the product and of the tests as a whole: all lines of code and templates.

A folder's number moves freely below the sums.  A sum goes down freely, and up only by what an issue grants.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.tidy import Module

PRODUCT, TESTS = 81_600, 55_560  # lines
# All lines of .py and .j2 files by folder.  A file counts for the innermost folder that is listed.
LINES: Mapping[str, int] = {
    "docs/make": 890,
    "engine_under_test": 2_730,
    "engine_under_test/cache": 1_300,
    "engine_under_test/disaggregation": 1_500,
    "engine_under_test/host": 560,
    "engine_under_test/model": 3_070,
    "engine_under_test/pools": 530,
    "engine_under_test/scheduler": 1_550,
    "fakes": 490,
    "fakes/front": 590,
    "harness": 280,
    "harness/bench": 310,
    "harness/commands": 3_810,
    "harness/core": 5_410,
    "harness/engines/demo": 310,
    "harness/engines/lmdeploy": 1_090,
    "harness/engines/own": 2_430,
    "harness/engines/own/content": 520,
    "harness/engines/own/mutants": 2_560,
    "harness/engines/server": 2_450,
    "harness/engines/sglang": 8_610,
    "harness/engines/transformers": 1_340,
    "harness/engines/vllm": 8_520,
    "harness/engines/vllm_cpu": 880,
    "harness/kit": 3_270,
    "harness/nightly": 2_340,
    "harness/releases": 2_450,
    "harness/report": 2_620,
    "harness/search": 7_420,
    "harness/strict": 1_620,
    "harness/traces": 390,
    "invariants": 3_620,
    "invariants/contracts": 3_590,
    "invariants/laws": 3_400,
    "src": 200,
    "tests": 1_630,
    "tests/cuda": 820,
    "tests/engine_under_test": 11_500,
    "tests/engines": 5_350,
    "tests/examples": 540,
    "tests/fakes": 750,
    "tests/harness": 21_850,
    "tests/hostile": 1_040,
    "tests/invariants": 6_460,
    "tests/packaging": 130,
    "tests/quality": 3_710,
    "tests/real": 950,
}


def lines_by_folder(modules: Iterable[Module]) -> Counter[str]:
    """The lines of code and templates for each folder; a file outside of all folders counts for its own path."""
    counts: Counter[str] = Counter()
    for module in modules:
        if module.path.endswith((".py", ".j2")):
            above = [folder for folder in LINES if module.path.startswith(f"{folder}/")]
            counts[max(above, key=len, default=module.path)] += module.source.count("\n")
    return counts


def over_budget(modules: Iterable[Module]) -> list[str]:
    """A line for each folder, and for each of the two sums, with more lines than its budget."""
    counts = lines_by_folder(modules)
    in_tests = sum(lines for folder, lines in counts.items() if f"{folder}/".startswith(("tests/", "docs/make/")))
    sums = {"the product": counts.total() - in_tests, "the tests": in_tests}
    budgets = {**LINES, "the product": PRODUCT, "the tests": TESTS}
    return [
        f"{folder}: {lines} lines, the budget is {budgets.get(folder, 0)}: delete some"
        for folder, lines in sorted((sums | counts).items())
        if lines > budgets.get(folder, 0)
    ]
