"""The repository keeps the rules of tidy.py; for each rule there is an example that breaks it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import budget, tidy
from tests.tidy import PACKAGES, Findings, Module

ROOT = Path(__file__).resolve().parent.parent

Rule = Callable[[Module], Findings]


def repository_files() -> list[str]:
    """The files that git tracks or would add."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(name for name in names if (ROOT / name).is_file())


FILES = [Module(name, (ROOT / name).read_text(errors="replace")) for name in repository_files()]
CODE = [file for file in FILES if file.path.endswith(".py")]


def within(*folders: str) -> list[Module]:
    return [module for module in CODE if module.path.startswith(tuple(f"{folder}/" for folder in folders))]


PRODUCT = within(*PACKAGES)


def expect_none(rule: Rule, files: list[Module]) -> None:
    found = [f"{file.path}:{line}: {complaint}" for file in files for line, complaint in rule(file)]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_rules_cover_every_package():
    """A rule that reads no file finds nothing."""
    assert {module.path.split("/")[0] for module in CODE} == {*PACKAGES, "src", "tests", "docs"}


def test_only_permitted_entries_are_at_the_top():
    assert tidy.unexpected_at_the_top(file.path for file in FILES) == []


def test_entry_that_is_not_permitted_at_the_top_is_named():
    paths = ["README.md", ".gitignore", "harness/cli.py", "utils/strings.py", "notes.md"]

    assert tidy.unexpected_at_the_top(paths) == ["notes.md", "utils"]


def test_each_package_has_only_permitted_imports():
    expect_none(tidy.foreign_imports, [*PRODUCT, *within("tests/examples/cacheserve")])


def test_packages_are_imported_below_the_root():
    expect_none(tidy.imports_without_the_root, CODE)


def test_imports_inside_the_engine_run_one_way():
    expect_none(tidy.imports_up_the_layers, within("engine_under_test"))


def test_folders_of_the_harness_have_no_import_cycle():
    assert tidy.folder_cycles(within("harness", "invariants")) == []


def test_folders_that_import_each_other_are_a_cycle():
    sources = {"a/one.py": "from b.two import x", "b/two.py": "import c.three", "c/three.py": "from a.one import y"}
    others = {"d/four.py": "from a.one import x", "a/five.py": "from a.one import y"}

    assert tidy.folder_cycles(Module(path, source) for path, source in (sources | others).items()) == ["a", "b", "c"]


def test_no_file_is_long():
    expect_none(tidy.long_files, CODE)


def test_each_folder_keeps_its_budget_of_lines():
    assert budget.over_budget(FILES) == []


def test_folder_over_its_budget_and_file_outside_of_all_are_named():
    paths = ("harness/core/long.py", "harness/report/long.html.j2", "tools/lost.py", "docs/long.md")
    files = [Module(path, "x = 1\n" * 10**5) for path in paths]

    over = [line.partition(":")[0] for line in budget.over_budget(files)]
    assert over == ["harness/core", "harness/report", "the product", "tools/lost.py"]


def test_no_function_is_long():
    expect_none(tidy.long_functions, CODE)


def test_no_function_has_many_parameters():
    expect_none(tidy.many_parameters, CODE)


def test_no_class_is_large():
    expect_none(tidy.large_classes, CODE)


def test_engine_and_invariants_are_deterministic():
    expect_none(tidy.nondeterminism, within("engine_under_test", "invariants"))


def test_nothing_catches_everything():
    expect_none(tidy.broad_excepts, PRODUCT)


def test_each_exception_to_the_rule_on_broad_excepts_is_used():
    places = {(file.path, function) for file in PRODUCT for _, function in tidy.catching_everything(file)}

    assert set(tidy.MAY_CATCH_EVERYTHING) <= places


def test_no_test_patches_or_sleeps():
    expect_none(tidy.patches_and_sleeps, within("tests", "docs"))


def test_each_type_ignore_has_a_reason():
    expect_none(tidy.unreasoned_ignores, CODE)


def test_each_todo_has_an_issue_number():
    expect_none(tidy.unnumbered_todos, CODE)


def test_no_attribute_name_is_built():
    expect_none(tidy.built_attribute_names, CODE)


def test_no_function_has_a_global_statement():
    expect_none(tidy.global_statements, CODE)


def test_each_init_is_empty_but_for_all():
    expect_none(tidy.crowded_inits, [module for module in CODE if module.path.endswith("/__init__.py")])


def test_no_invariant_names_a_pool():
    expect_none(tidy.named_pools, within("invariants"))


def test_engine_asks_a_component_and_not_which_it_is():
    parts = ("pools", "cache", "host", "sessions", "scheduler", "disaggregation")
    engine = [*within(*(f"engine_under_test/{part}" for part in parts))]

    expect_none(tidy.kinds_of_components, engine)
    assert set(tidy.MAY_READ_A_WINDOW) <= {module.path for module in engine if ".window" in module.source}


def test_no_file_names_a_path_outside_the_repository():
    expect_none(tidy.machine_paths, FILES)


ENGINE = "engine_under_test/cache/tree.py"
MANY_FIELDS = "".join(f"    a{n}: int\n" for n in range(13))
MANY_METHODS = "".join(f"    def m{n}(self): ...\n" for n in range(13))
MANY_ON_SELF = "    def __init__(self):\n" + "".join(f"        self.a{n} = {n}\n" for n in range(13))
SIX = "a, b, *, c, d, e, f"
LONG = "def f():\n" + "    x = 1\n" * 50

BROKEN = [
    (tidy.foreign_imports, "invariants/pools.py", "import torch", "1: invariants may not import torch"),
    (
        tidy.foreign_imports,
        "invariants/pools.py",
        "from swarden.harness.core import ops",
        "1: invariants may not import harness.core.ops",
    ),
    (tidy.foreign_imports, ENGINE, "\nimport fakes", "2: engine_under_test may not import fakes"),
    (
        tidy.foreign_imports,
        ENGINE,
        "from swarden.invariants.view import Snapshot",
        "1: engine_under_test may not import invariants.view.Snapshot",
    ),
    (tidy.foreign_imports, ENGINE, "import tokenizers", "1: engine_under_test may not import tokenizers"),
    (
        tidy.foreign_imports,
        "fakes/link.py",
        "from swarden.engine_under_test import errors",
        "1: fakes may not import engine_under_test.errors",
    ),
    (tidy.foreign_imports, "harness/core/driver.py", "import tests.x", "1: harness/core may not import tests.x"),
    (tidy.foreign_imports, "harness/core/driver.py", "from .ops import Op", "1: harness/core may not import .ops.Op"),
    (
        tidy.imports_up_the_layers,
        ENGINE,
        "from swarden.engine_under_test.scheduler import queues",
        "1: cache may not import scheduler.queues",
    ),
    (
        tidy.imports_up_the_layers,
        "engine_under_test/host/tier.py",
        "from swarden.engine_under_test.sessions.controller import Session",
        "1: host may not import sessions.controller.Session",
    ),
    (
        tidy.imports_up_the_layers,
        "engine_under_test/model/layers.py",
        "from swarden.engine_under_test.pools import ledger",
        "1: model may not import pools.ledger",
    ),
    (
        tidy.imports_without_the_root,
        "tests/test_ops.py",
        "import json\nfrom harness import x",
        "2: want swarden.harness",
    ),
    (tidy.imports_up_the_layers, "engine_under_test/helpers.py", "", "1: helpers has no layer"),
    (tidy.long_files, ENGINE, "x = 1\n" * 451, "451: 451 lines, at most 450"),
    (tidy.long_functions, ENGINE, LONG, "1: f has 51 lines, at most 50"),
    (tidy.many_parameters, ENGINE, f"def f({SIX}): ...", "1: f has 6 parameters, at most 5"),
    (tidy.many_parameters, ENGINE, f"class A:\n    def f(self, {SIX}): ...", "2: f has 6 parameters, at most 5"),
    (tidy.many_parameters, ENGINE, "def f(a, b, c, d, *e, **f): ...", "1: f has 6 parameters, at most 5"),
    (tidy.large_classes, ENGINE, f"class A:\n{MANY_FIELDS}", "1: A has 13 attributes, at most 12"),
    (tidy.large_classes, ENGINE, f"class A:\n{MANY_ON_SELF}", "1: A has 13 attributes, at most 12"),
    (tidy.large_classes, ENGINE, f"class A:\n{MANY_METHODS}", "1: A has 13 public methods, at most 12"),
    (
        tidy.nondeterminism,
        ENGINE,
        "from time import monotonic",
        "1: imports time.monotonic: randomness and time come through a port",
    ),
    (tidy.nondeterminism, ENGINE, "key = hash('a')", "1: calls hash(), which differs from run to run"),
    (
        tidy.broad_excepts,
        ENGINE,
        "def f():\n    try: g()\n    except (KeyError, Exception): ...",
        "3: f catches everything: name the expected exceptions",
    ),
    (
        tidy.broad_excepts,
        ENGINE,
        "try: g()\nexcept: ...",
        "2: the module catches everything: name the expected exceptions",
    ),
    (
        tidy.broad_excepts,
        ENGINE,
        "with suppress(Exception): g()",
        "1: the module catches everything: name the expected exceptions",
    ),
    (tidy.patches_and_sleeps, "tests/test_a.py", "from unittest.mock import patch", "1: uses unittest.mock.patch"),
    (tidy.patches_and_sleeps, "tests/test_a.py", "import time\ntime.sleep(1)", "2: uses time.sleep"),
    (
        tidy.unreasoned_ignores,
        ENGINE,
        "x = 1  # type: ignore[misc]",
        "1: '# type: ignore[misc]': want '# type: ignore[code]  # reason'",
    ),
    (tidy.unnumbered_todos, ENGINE, "# TODO later", "1: '# TODO later': want the number of its issue"),
    (tidy.built_attribute_names, ENGINE, "getattr(a, f'{b}_c')", "1: getattr with a built name: f'{b}_c'"),
    (tidy.global_statements, ENGINE, "def f():\n    global a, b", "2: global a, b"),
    (tidy.crowded_inits, "invariants/__init__.py", "import os", "1: import os: __init__.py is empty but for ALL"),
    (
        tidy.crowded_inits,
        "invariants/__init__.py",
        "ALL = ()\ndef f(): ...",
        "2: def f():: __init__.py is empty but for ALL",
    ),
    (tidy.named_pools, "invariants/pools.py", "pool = 'swa'", "1: names a pool: 'swa'"),
    (tidy.named_pools, "invariants/pools.py", "x = f'the full pool {y}'", "1: names a pool: 'the full pool '"),
    (tidy.kinds_of_components, ENGINE, "if pool.window: ...", "1: reads pool.window: ask the component"),
    (tidy.kinds_of_components, ENGINE, "x = node.live[0]", "1: numbers a component: node.live[0]"),
    (tidy.machine_paths, "README.md", "see\n/wor" + "k/main", "2: names a place outside the repository: /wor" + "k/"),
]

KEPT = [
    (tidy.foreign_imports, "engine_under_test/model/checkpoint.py", "import json, safetensors.torch"),
    (tidy.foreign_imports, "fakes/link.py", "from swarden.engine_under_test.ports import Clock"),
    (tidy.foreign_imports, ENGINE, "from swarden.invariants.events import Taken"),
    (tidy.imports_up_the_layers, "engine_under_test/ports.py", "from swarden.engine_under_test import errors"),
    (tidy.imports_up_the_layers, "engine_under_test/engine.py", "from swarden.engine_under_test.model import layers"),
    (
        tidy.imports_up_the_layers,
        "engine_under_test/model/layers.py",
        "from swarden.engine_under_test.pools import kv_store",
    ),
    (tidy.many_parameters, "harness/engines/own/a.py", f"class A(RuleBasedStateMachine):\n    def f(self, {SIX}): ..."),
    (tidy.many_parameters, "harness/commands/fuzz.py", f"def fuzz(a: Annotated[int, Option()], {SIX}): ..."),
    (tidy.large_classes, ENGINE, f"@dataclass(frozen=True)\nclass A:\n{MANY_FIELDS}"),
    (tidy.large_classes, ENGINE, f"class A(msgspec.Struct):\n{MANY_FIELDS}"),
    (tidy.large_classes, ENGINE, f"class A(EngineMachine):\n{MANY_METHODS}"),
    (tidy.broad_excepts, ENGINE, "try: g()\nexcept KeyError: ..."),
    (tidy.unreasoned_ignores, ENGINE, "x = 1  # type: ignore[misc]  # the stub is wrong"),
    (tidy.unnumbered_todos, ENGINE, "# TODO #12: later"),
    (tidy.built_attribute_names, ENGINE, "getattr(a, name)"),
    (tidy.crowded_inits, "invariants/__init__.py", "from swarden.invariants import pools\n\nALL = (pools.a,)"),
    (tidy.kinds_of_components, ENGINE, "x = node.live[component], chain[0]"),
    (tidy.kinds_of_components, "engine_under_test/scheduler/batch.py", "pool.window"),
    (tidy.named_pools, "invariants/pools.py", "def f():\n    '''The full pool.'''\n    return 'fully'"),
]


@pytest.mark.parametrize(("rule", "path", "source", "complaint"), BROKEN, ids=[rule.__name__ for rule, *_ in BROKEN])
def test_rule_names_the_line_that_breaks_it(rule, path, source, complaint):
    assert [f"{line}: {found}" for line, found in rule(Module(path, source))] == [complaint]


@pytest.mark.parametrize(("rule", "path", "source"), KEPT, ids=[rule.__name__ for rule, *_ in KEPT])
def test_rule_accepts_code_that_keeps_it(rule, path, source):
    assert list(rule(Module(path, source))) == []


def test_every_rule_has_an_example_that_breaks_it():
    signature = tidy.long_files.__annotations__
    rules = {name for name, value in vars(tidy).items() if getattr(value, "__annotations__", None) == signature}

    assert {rule.__name__ for rule, *_ in BROKEN} == rules
