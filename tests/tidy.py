"""The rules of the design and of the style that a test can check.

Each rule is a function from a file to the lines that break it.  The constants at the top are the limits and the
exceptions, each exception with its reason.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeGuard

PACKAGES = ("engine_under_test", "invariants", "fakes", "harness")
PERMITTED_AT_THE_TOP = {
    *(*PACKAGES, "src", "tests", "docs"),
    *("pyproject.toml", "MANIFEST.in", "requirements.lock", "Makefile", "LICENSE"),
    *("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"),
}

OWN_ENGINE = ("engine_under_test", "fakes", "invariants", "torch", "hypothesis")
# Permitted imports besides the standard library, by the innermost folder of the file.
MAY_IMPORT = {
    "engine_under_test": ("engine_under_test", "torch", "invariants.events"),
    "engine_under_test/model": ("engine_under_test", "torch", "safetensors", "tokenizers"),
    "invariants": ("invariants",),
    "fakes": ("fakes", "torch", "numpy", "engine_under_test.ports", "harness.kit", "invariants.events"),
    "fakes/front": ("engine_under_test", "fakes", "harness.kit", "invariants.events", "msgspec", "waitress"),
    "harness": (*PACKAGES, "torch", "numpy", "hypothesis", "msgspec", "rich", "typer", "pytest"),
    "harness/core": ("harness.core", "invariants", "msgspec"),
    "harness/report": ("harness.core", "harness.report", "invariants", "jinja2", "markdown_it"),
    "harness/search": ("harness.core", "harness.report", "harness.search", "invariants", "hypothesis", "msgspec"),
    "harness/nightly": (
        "harness.core",
        *("harness.report", "harness.search", "harness.releases", "harness.nightly"),
        *("msgspec", "coverage", "distributed"),
    ),
    "harness/releases": (
        *("harness.core", "harness.kit", "harness.report", "harness.search", "harness.releases"),
        *("invariants", "hypothesis", "msgspec"),
    ),
    "harness/strict": ("harness.core", "harness.kit", "harness.report", "harness.strict", "invariants", "msgspec"),
    "harness/engines/own": (
        *(*OWN_ENGINE, "msgspec"),
        *("harness.core", "harness.kit", "harness.search", "harness.engines.own", "harness.strict"),
    ),
    "harness/engines/own/content": (
        *("engine_under_test", "invariants", "torch", "numpy"),
        *("harness.strict", "harness.engines.own.content"),
    ),
    "harness/engines/server": (
        *("harness.core", "harness.kit", "harness.strict", "harness.engines.server"),
        *("invariants", "msgspec"),
    ),
    **{
        f"harness/engines/{engine}/standalone": ("harness.kit", f"harness.engines.{engine}", *packages)
        for engine, packages in (
            *(("server", ()), ("sglang", ("sglang", "torch")), ("vllm", ("vllm", "torch"))),
            ("transformers", ("transformers", "torch")),
        )
    },
    "harness/engines/demo": ("harness.engines.demo", "kit"),  # as the package of a user
    "tests/examples/cacheserve": ("tests.examples.cacheserve", "kit"),
    "harness/kit": ("harness.core", "harness.kit", "invariants", "greenlet", "msgspec"),
    "harness/engines/lmdeploy": (
        *("harness.core", "harness.kit", "harness.engines.lmdeploy", "invariants", "msgspec"),
    ),
    "harness/engines/sglang": (
        *("harness.core", "harness.search", "harness.strict", "harness.kit", "harness.engines.sglang"),
        *("invariants", "hypothesis", "msgspec"),
    ),
    "harness/engines/transformers": (
        *("harness.core", "harness.kit", "harness.engines.transformers", "invariants", "msgspec"),
    ),
    "harness/engines/vllm": (
        *("harness.core", "harness.search", "harness.strict", "harness.kit", "harness.engines.vllm"),
        *("hypothesis", "invariants", "msgspec"),
    ),
    "harness/engines/vllm_cpu": (
        *("harness.core", "harness.kit", "harness.engines.vllm", "harness.engines.vllm_cpu", "invariants", "msgspec"),
    ),
}
# Inside the engine a part imports only lower layers.  Only the parts of the lowest layer import each other.
LAYERS = (
    (
        *("clock", "errors", "units", "components", "config", "kv_events", "limits", "messages"),
        *("ports", "request", "sampling", "strict"),
    ),
    ("pools",),
    ("cache",),
    ("host", "sessions"),
    ("scheduler",),
    ("disaggregation",),
    ("engine",),
    ("engine_process",),
    ("pair", "processes"),
)
VISIBLE = {part: (*chain(*LAYERS[:level]), part) for level, parts in enumerate(LAYERS) for part in parts}
VISIBLE |= dict.fromkeys(LAYERS[0], LAYERS[0])
VISIBLE |= {
    "__init__": (),
    "engine": (*VISIBLE["engine"], "model"),
    "model": ("errors", "units", "limits", "config", "ports", "sampling", "pools.kv_store", "model"),
}

MOST_LINES_OF_A_FILE = 450
MAY_BE_LONG = {  # with the reason
    "invariants/events.py": "one list of the types of events",
    "invariants/view.py": "one list of the parts of a snapshot",
    "tests/tidy.py": "one list of the rules",
}
MOST_LINES_OF_A_FUNCTION = 50
MOST_PARAMETERS = 5
MAY_HAVE_MANY_PARAMETERS = {  # with the reason
    ("harness/core/mutant.py", "bug"): "one call writes a record, all but two by keyword",
    ("harness/search/search.py", "search"): "settings of Hypothesis, by keyword",
    ("harness/search/testing.py", "fuzz"): "the options of a campaign, by keyword",
}
MOST_ATTRIBUTES = 12
MOST_PUBLIC_METHODS = 12
MAY_BE_LARGE = {  # with the reason
    "Adapted": "the base of adapters: a default for each part of the port and of the snapshot",
    "Component": "one interface, a method for each question of the engine to the layers of one kind",
    "EnginePort": "one port with all calls to an engine",
    "KnownBug": "a field for each key of its file",
    "Outcome": "a property for each part of the verdict and of the figures",
    "Result": "a field for each part of the result of a campaign",
    "Tallies": "a field for each count",
    "Target": "one contract, mostly defaults",
    "OwnTarget": "it has every part of that contract",
    "SglangEngine": "it has every part of that port",
    "SglangFacts": "one walk, which finds all that Adapted asks for",
    "VllmEngine": "it has every part of that port but sessions",
    "VllmFacts": "one walk, which finds all that Adapted asks for",
}
# Records, and lists of names.
UNSIZED_BASES = {"NamedTuple", "Struct", "Enum", "IntEnum", "StrEnum", "TypedDict", "Code"}

NONDETERMINISTIC_MODULES = {"random", "secrets", "time", "datetime", "uuid"}
NONDETERMINISTIC_CALLS = {"id", "hash"}
MAY_TELL_THE_TIME = {  # with the reason
    "engine_under_test/clock.py": "the clock behind the port",
    "engine_under_test/model/tokenizer_process.py": "it limits its CPU time",
}
BROAD_EXCEPTIONS = {"Exception", "BaseException"}
MAY_CATCH_EVERYTHING: dict[tuple[str, str], str] = {  # (file, function): the reason
    ("harness/core/driver.py", "_call"): "an exception of the engine is a finding: it ends the run with a fingerprint",
    ("harness/core/target_fault.py", "blamed_on"): "an exception of a target is raised again as a fault of that target",
    ("harness/kit/lockstep.py", "join"): "an exception of an engine's thread is kept, because engines catch it here",
    (
        "harness/engines/sglang/parts/storage.py",
        "call",
    ): "an exception of the storage is kept, because the release catches it",
    ("harness/kit/ranks.py", "_act"): "an exception of a rank is raised when it is the turn of that rank",
    ("harness/kit/lockstep.py", "_run"): "an exception of an engine's thread is raised in the step of that thread",
    ("harness/core/process.py", "serve"): "an internal error ends the process, and is the data of its death",
    ("harness/core/process.py", "_next"): "a message that cannot be read is the death of its process, with the reason",
    ("engine_under_test/model/tokenizer_process.py", "answer"): "tokenizers raises a bare Exception for its errors",
    ("harness/kit/standalone.py", "run_script"): "a program ends with 2 for all that is not its bug",
    ("harness/cli.py", "run"): "the outermost handler: an internal error has its own exit code",
    ("engine_under_test/strict.py", "checker_of"): "the entry point of another package can raise anything",
    ("harness/core/imports.py", "importing"): "the code of another package can raise anything",
    ("harness/core/mutant_file.py", "mutants_of"): "a file of the user can raise anything",
    ("harness/strict/follow.py", "__call__"): "an error of a server is raised again",
    ("harness/strict/follow.py", "surround"): "the boundary to a server: an error of the check ends the check alone",
    ("harness/strict/hook/sitecustomize.py", "attach_or_say"): "that boundary, before the check is imported",
    ("harness/strict/hook/sitecustomize.py", "attach"): "that boundary, before the check has wrapped anything",
    ("fakes/front/loop.py", "_run"): "an error of the engine ends its thread, and its clients get that error",
    ("harness/search/mutants/searches.py", "_search"): "an engine that cannot be built with a mutant has detected it",
}

MACHINE_PATHS = re.compile(r"/wor[k]/|\.\./share[d]\b")  # in brackets, so that this line does not match
UNREASONED_IGNORE = re.compile(r"#\s*type:\s*ignore(?!\[[\w, -]+\]\s*#\s*\w+)")
UNNUMBERED_TODO = re.compile(r"\b(TODO|FIXME|XXX)\b(?!.*#\d)")
POOL_NAMES = re.compile(r"\b(swa|full)\b", re.IGNORECASE)
PATCHED_OR_SLEPT = re.compile(r"(^|\.)(mock\.patch\b.*|time\.sleep)$")

# Names of what exists once a component, beside `x of component`.
BY_COMPONENT = {
    *("components", "pools", "ledgers", "followers", "live", "locks", "pins", "pages", "lens", "tail_lens", "victims"),
    *("evictable", "protected", "freed", "num_copied", "frontiers", "moves", "need"),
}
MAY_READ_A_WINDOW = {  # with the reason
    "engine_under_test/scheduler/batch.py": "the forward masks by the window",
    "engine_under_test/disaggregation/payload.py": "both sides compare what their layers read",
}

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef
Findings = Iterator[tuple[int, str]]  # the line and the complaint


@dataclass(frozen=True)
class Module:
    """One file: its path in the repository, and its text."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def functions(self) -> list[tuple[FunctionDef, ast.AST]]:
        """Each function with its parent node."""
        return [
            (child, parent) for parent in self.nodes for child in ast.iter_child_nodes(parent) if is_function(child)
        ]

    def imports(self) -> Findings:
        """The full dotted name of each import, with its line."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name.removeprefix("swarden.")) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = "." * node.level + (node.module or "")
                yield from ((node.lineno, f"{origin}.{alias.name}".removeprefix("swarden.")) for alias in node.names)

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Each call, with the source of the called expression."""
        return ((node, ast.unparse(node.func)) for node in self.nodes if isinstance(node, ast.Call))

    def comments(self, pattern: re.Pattern[str]) -> Findings:
        """The comments that match; a file without any match is not divided into tokens, which is slow."""
        if pattern.search(self.source):
            for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
                if token.type == tokenize.COMMENT and pattern.search(token.string):
                    yield token.start[0], token.string


# --- helpers of the rules


def is_function(node: ast.AST) -> TypeGuard[FunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def stands_under(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def base_names(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).rpartition(".")[2] for base in node.bases}


def is_machine(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(base.endswith("Machine") for base in base_names(node))


def is_record(node: ast.ClassDef) -> bool:
    options = [keyword for call in node.decorator_list if isinstance(call, ast.Call) for keyword in call.keywords]
    frozen = any(option.arg == "frozen" and ast.unparse(option.value) == "True" for option in options + node.keywords)
    return frozen or bool(base_names(node) & UNSIZED_BASES)


def attributes(node: ast.ClassDef) -> set[str]:
    """The attributes that the body declares or a method sets on self."""
    targets: list[ast.expr] = []
    for part in node.body:
        targets += [part.target] if isinstance(part, ast.AnnAssign) else []
        targets += part.targets if isinstance(part, ast.Assign) else []
    declared = {target.id for target in targets if isinstance(target, ast.Name)} - {"__slots__"}
    return declared | {
        inner.attr
        for method in filter(is_function, node.body)
        for inner in ast.walk(method)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and ast.unparse(inner.value) == "self"
    }


def num_parameters(function: FunctionDef, parent: ast.AST) -> int:
    """The number of parameters without self and cls."""
    given = function.args
    bound = isinstance(parent, ast.ClassDef) and "staticmethod" not in map(ast.unparse, function.decorator_list)
    starred = (given.vararg is not None) + (given.kwarg is not None)
    return len(given.posonlyargs + given.args + given.kwonlyargs) + starred - bound


def is_command(module: Module, function: FunctionDef) -> bool:
    """Whether the function is a typer command, whose parameters are the options of the command line."""
    parameters = [*function.args.args, *function.args.kwonlyargs]
    annotations = [ast.unparse(argument.annotation) for argument in parameters if argument.annotation]
    return module.path.startswith("harness/commands/") and any("Annotated" in text for text in annotations)


def function_at(module: Module, line: int) -> str:
    """The name of the innermost function around a line."""
    around = [node for node, _ in module.functions if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return max(around, key=lambda node: node.lineno).name if around else "the module"


def catching_everything(module: Module) -> list[tuple[int, str]]:
    """Each place that catches or suppresses any exception: its line and its function."""
    caught = [(node.lineno, node.type) for node in module.nodes if isinstance(node, ast.ExceptHandler)]
    for call, called in module.calls():
        caught += [(call.lineno, arg) for arg in call.args] if called.endswith("suppress") else []
    return [(line, function_at(module, line)) for line, types in caught if types is None or is_broad(types)]


def is_broad(types: ast.expr) -> bool:
    return any(ast.unparse(element) in BROAD_EXCEPTIONS for element in getattr(types, "elts", [types]))


# --- the rules


def unexpected_at_the_top(paths: Iterable[str]) -> list[str]:
    """The files and folders at the top that are not permitted; dot-files are ignored."""
    top = {path.split("/")[0] for path in paths}
    return sorted(name for name in top - PERMITTED_AT_THE_TOP if not name.startswith("."))


def foreign_imports(module: Module) -> Findings:
    folder = max((folder for folder in MAY_IMPORT if module.path.startswith(f"{folder}/")), key=len)
    for line, name in module.imports():
        if name.split(".")[0] not in sys.stdlib_module_names and not stands_under(name, MAY_IMPORT[folder]):
            yield line, f"{folder} may not import {name}"


def imports_without_the_root(module: Module) -> Findings:
    """Our packages are imported below `swarden`: in a checkout their folders can be imported at the top by accident."""
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "."]
            yield from ((node.lineno, f"want swarden.{name}") for name in names if name.split(".")[0] in PACKAGES)


def imports_up_the_layers(module: Module) -> Findings:
    part = module.path.removeprefix("engine_under_test/").removesuffix(".py").split("/")[0]
    if part not in VISIBLE:
        yield 1, f"{part} has no layer"
    for line, name in module.imports():
        seen = name.removeprefix("engine_under_test.")
        if seen != name and not stands_under(seen, VISIBLE.get(part, ())):
            yield line, f"{part} may not import {seen}"


def folder_cycles(modules: Iterable[Module]) -> list[str]:
    """The folders that are part of an import cycle; the parts of an engine are in the folder of the engine."""
    imported: dict[str, set[str]] = {}
    for module in modules:
        folder = module.path.rpartition("/")[0].removesuffix("/parts")
        places = {name.replace(".", "/") for _, name in module.imports()}
        imported.setdefault(folder, set()).update(places)
    folders = {
        folder: {_folder_of(place, imported) for place in places} - {folder, ""} for folder, places in imported.items()
    }
    reached = {folder: _reached_from(folder, folders) for folder in folders}
    return sorted(folder for folder in folders if folder in reached[folder])


def _folder_of(place: str, folders: Iterable[str]) -> str:
    """The innermost of these folders that contains "folder/module/name"; "" if none does."""
    return max((folder for folder in folders if place.startswith(f"{folder}/")), key=len, default="")


def _reached_from(folder: str, folders: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [folder]
    while waiting:
        new = folders.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def long_files(module: Module) -> Findings:
    if (lines := len(module.source.splitlines())) > MOST_LINES_OF_A_FILE and module.path not in MAY_BE_LONG:
        yield lines, f"{lines} lines, at most {MOST_LINES_OF_A_FILE}"


def long_functions(module: Module) -> Findings:
    for function, _ in module.functions:
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > MOST_LINES_OF_A_FUNCTION:
            yield function.lineno, f"{function.name} has {lines} lines, at most {MOST_LINES_OF_A_FUNCTION}"


def many_parameters(module: Module) -> Findings:
    for function, parent in module.functions:
        count = num_parameters(function, parent)
        is_listed = is_machine(parent) or (module.path, function.name) in MAY_HAVE_MANY_PARAMETERS
        if count > MOST_PARAMETERS and not is_listed and not is_command(module, function):
            yield function.lineno, f"{function.name} has {count} parameters, at most {MOST_PARAMETERS}"


def large_classes(module: Module) -> Findings:
    for node in module.classes:
        if is_record(node) or is_machine(node) or node.name in MAY_BE_LARGE:
            continue
        if (count := len(attributes(node))) > MOST_ATTRIBUTES:
            yield node.lineno, f"{node.name} has {count} attributes, at most {MOST_ATTRIBUTES}"
        public = {method.name for method in filter(is_function, node.body) if not method.name.startswith("_")}
        if len(public) > MOST_PUBLIC_METHODS:
            yield node.lineno, f"{node.name} has {len(public)} public methods, at most {MOST_PUBLIC_METHODS}"


def nondeterminism(module: Module) -> Findings:
    for line, name in module.imports():
        if name.split(".")[0] in NONDETERMINISTIC_MODULES and module.path not in MAY_TELL_THE_TIME:
            yield line, f"imports {name}: randomness and time come through a port"
    for call, called in module.calls():
        if called in NONDETERMINISTIC_CALLS:
            yield call.lineno, f"calls {called}(), which differs from run to run"


def broad_excepts(module: Module) -> Findings:
    for line, function in catching_everything(module):
        if (module.path, function) not in MAY_CATCH_EVERYTHING:
            yield line, f"{function} catches everything: name the expected exceptions"


def patches_and_sleeps(module: Module) -> Findings:
    used = [(node.lineno, ast.unparse(node)) for node in module.nodes if isinstance(node, ast.Attribute)]
    for line, name in [*module.imports(), *used]:
        if PATCHED_OR_SLEPT.search(name):
            yield line, f"uses {name}"


def unreasoned_ignores(module: Module) -> Findings:
    for line, comment in module.comments(UNREASONED_IGNORE):
        yield line, f"{comment!r}: want '# type: ignore[code]  # reason'"


def unnumbered_todos(module: Module) -> Findings:
    for line, comment in module.comments(UNNUMBERED_TODO):
        yield line, f"{comment!r}: want the number of its issue"


def built_attribute_names(module: Module) -> Findings:
    for call, called in module.calls():
        name = call.args[1] if called in {"getattr", "setattr", "hasattr", "delattr"} else None
        if isinstance(name, ast.JoinedStr | ast.BinOp | ast.Call):
            yield call.lineno, f"{called} with a built name: {ast.unparse(name)}"


def global_statements(module: Module) -> Findings:
    for node in module.nodes:
        if isinstance(node, ast.Global):
            yield node.lineno, f"global {', '.join(node.names)}"


def crowded_inits(module: Module) -> Findings:
    """An __init__.py has only ALL and the imports for ALL; that of the root has the public functions."""
    if module.path == "src/swarden/__init__.py":
        return
    body = module.tree.body
    lists = [node for node in body if ast.unparse(node).startswith(("ALL = ", "ALL: "))]
    imports = [node for node in body if lists and isinstance(node, ast.Import | ast.ImportFrom)]
    for node in body:
        if node not in lists + imports:
            yield node.lineno, f"{ast.unparse(node).splitlines()[0]}: __init__.py is empty but for ALL"


def named_pools(module: Module) -> Findings:
    docstrings = {node.value for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or node in docstrings:
            continue
        if POOL_NAMES.search(node.value):
            yield node.lineno, f"names a pool: {node.value!r}"


def kinds_of_components(module: Module) -> Findings:
    """A component is asked, and no place knows which one it is: no window is read, and no component has a number."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "window" and module.path not in MAY_READ_A_WINDOW:
            yield node.lineno, f"reads {ast.unparse(node)}: ask the component"
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            name = ast.unparse(node.value).rpartition(".")[2]
            if isinstance(node.slice.value, int) and name in BY_COMPONENT:
                yield node.lineno, f"numbers a component: {ast.unparse(node)}"


def machine_paths(module: Module) -> Findings:
    for line, text in enumerate(module.source.splitlines(), start=1):
        if found := MACHINE_PATHS.search(text):
            yield line, f"names a place outside the repository: {found[0]}"
