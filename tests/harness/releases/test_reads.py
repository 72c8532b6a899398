"""What an adapter reads of a release, and the differences between two releases; the packages are made up."""

import ast
import dis
import types
from pathlib import Path

import pytest

from swarden.harness.kit.released_code import Feature, ReleasedCode
from swarden.harness.releases.comparison import released
from swarden.harness.releases.definitions import Definitions, defined
from swarden.harness.releases.reads import (
    GONE,
    MISSING,
    MOVED,
    NAMES,
    NEW,
    READS,
    SIGNATURE,
    UNSET,
    WRAPS,
    Adapter,
    Comparison,
    adapter_of,
)

OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")
OLD = {
    "__init__.py": "",
    "pool.py": "class Pool:\n    pass\n\n\nclass Blocks(Pool):\n    def take(self, count): ...\n",
    "core.py": (
        "from serve.pool import Pool\n\n\nclass Request:\n    def __init__(self, rid):\n        self.row = 0\n\n\n"
        "class Kind(Enum):\n    FULL = 1\n\n\n"
        "class Core:\n    def step(self): ...\n    def report(self): ...\n    def pause(self): ...\n"
    ),
    "events.py": "class Publisher: ...\n",
    "unrelated/models.py": "x = 1\n",
}
NEW_SOURCES = {
    **OLD,
    "pool.py": OLD["pool.py"] + "\n\nclass Ring(Pool):\n    pass\n",
    "core.py": (
        "from serve.pool import Pool\n\n\nclass Record:\n    row: int = 0\n\n\n"
        "class Request:\n    def __init__(self, rid, *, slo):\n        self.record = Record()\n\n\n"
        "class Kind(Enum):\n    FULL = 1\n    RING = 2\n\n\n"
        "class Core:\n    def __init__(self):\n        self.is_lazy = True\n    def step(self, batch): ...\n"
    ),
    "events.py": "",
}
ADAPTER = '''"""pause is only in this docstring."""

FEATURES = {"kv_events": Feature("it publishes", lambda release: release.code("Publisher") is not None)}
SILENT = ("report",)


def build(release):
    class Wrapped(release.code("Core")):
        def step(self):
            return self.request.row

    return Wrapped(), release.code("Request")(rid=1), release.code("Kind"), release.code("Blocks")


def retract(request):
    request.row = 1
    return seen.Retracted(request.row, 0, ())
'''
PLACES = {
    "Core": ("core:Core",),
    "Request": ("core:Request",),
    "Kind": ("core:Kind",),
    "Blocks": ("pool:Blocks",),
    "Publisher": ("kv_events:Publisher", "events:Publisher"),
}


@pytest.fixture
def adapter(tmp_path):
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter/engine.py").write_text(ADAPTER)
    return Adapter([tmp_path / "adapter"], "serve", PLACES)


@pytest.fixture
def comparison(adapter, tmp_path):
    old, new = _release(tmp_path / "old", OLD), _release(tmp_path / "new", NEW_SOURCES)
    return Comparison(adapter, adapter.definitions(old), adapter.definitions(new), "1.0.0")


def _release(folder: Path, files):
    for name, text in files.items():
        path = folder / "serve" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_table_has_what_is_read_wrapped_and_named(comparison):
    table = {name: {use.how for use in uses} for name, uses in comparison.table.items()}

    assert (table["row"], table["step"], table["report"]) == ({READS, WRAPS}, {WRAPS}, {NAMES})
    assert "pause" not in table
    assert [str(use) for use in comparison.table["step"]] == ["adapter/engine.py:9 build.Wrapped"]


def test_each_kind_of_difference_is_named(comparison):
    found = {(difference.kind, difference.what): difference for difference in comparison.differences}

    assert set(found) == {
        (MISSING, "Publisher (kv_events:Publisher, events:Publisher)"),
        (GONE, "core:Core.report(self)"),
        (MOVED, "core:Request.row"),
        (SIGNATURE, "core:Core.step(self)"),
        (SIGNATURE, "core:Request.__init__(self, rid)"),
        (NEW, "core:Core.is_lazy"),
        (NEW, "core:Kind.RING"),
        (NEW, "core:Request.record"),
        (NEW, "pool:Ring(Pool)"),
    }
    assert found[MISSING, "Publisher (kv_events:Publisher, events:Publisher)"].features == ["kv_events"]
    moved = found[MOVED, "core:Request.row"]
    assert moved.now == ["core:Record.row"]
    assert "retracted_requests_hold_nothing" in moved.laws
    assert found[SIGNATURE, "core:Core.step(self)"].now == ["(self, batch)"]


def test_name_that_the_kit_defines_too_is_gone(adapter, tmp_path):
    """`entries` is a name of the kit; the pool of the older release had it, and the adapter reads it."""
    (tmp_path / "adapter/pools.py").write_text("def units(pool):\n    return pool.entries\n")
    with_entries = {**OLD, "pool.py": OLD["pool.py"] + "    def entries(self): ...\n"}
    old, new = (
        adapter.definitions(_release(tmp_path / name, files)) for name, files in (("a", with_entries), ("b", OLD))
    )

    assert [item.what for item in Comparison(adapter, old, new, "1.0.0").differences] == ["pool:Blocks.entries(self)"]


WORKER = """
class Base:
    def __init__(self):
        self.queue = []
        self.ranks = Ranks()
{inits}
    def poll(self):
        self.last = self.queue
        return self.finished()
    def finished(self):
        return self.ranks.tp{reads}
    def register(self):
        return self.address{registers}
    def quiet(self):
        return 1{quiets}
class Worker(Base):
    limit = 1
"""
DRIVER = """
SILENT = ("quiet",)
def worker(release):
    kind = type("Own", (release.code("Worker"),), {{"__init__": lambda own: None{methods}}})
    worker = kind()
    vars(worker).update(queue=[], ranks=SimpleNamespace(tp=1))
    return worker.poll(), worker.register
"""
LATER = {
    "inits": "        self.failed = self.backoff = {}\n",
    "reads": ", self.ranks.dcp, self.failed, self.last, self.limit, self.register()",
    "registers": ", self.backoff",
    "quiets": ", self.failed, self.backoff",
}


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        pytest.param("", {"failed", "ranks.dcp"}, id="register is not driven, since it needs an address"),
        pytest.param(', "__getattr__": none', {"failed", "ranks.dcp", "backoff"}, id="what is not set is None"),
        pytest.param(', "finished": none', set(), id="the method is replaced"),
    ],
)
def test_attributes_that_a_replaced_init_has_to_set_are_named(tmp_path, methods, expected):
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter/link.py").write_text(DRIVER.format(methods=methods))
    adapter = Adapter([tmp_path / "adapter"], "serve", {"Worker": ("worker:Worker",)})
    sources = (WORKER.format(**dict.fromkeys(LATER, "")), WORKER.format(**LATER))
    old, new = (
        adapter.definitions(_release(tmp_path / name, {"__init__.py": "", "worker.py": text}))
        for name, text in zip(("a", "b"), sources, strict=True)
    )

    found = [item for item in Comparison(adapter, old, new, "1.0.0").differences if item.kind == UNSET]
    assert {difference.what.partition(" (")[0].removeprefix("Worker.") for difference in found} == expected
    assert {str(use) for difference in found for use in difference.uses} <= {"adapter/link.py:4 worker"}


def test_equal_releases_differ_in_nothing_and_comments_do_not_count(adapter, tmp_path):
    again = {**OLD, "core.py": "# a comment\n" + OLD["core.py"], "unrelated/models.py": "x = 2\n"}
    old, new = (adapter.definitions(_release(tmp_path / name, files)) for name, files in (("a", OLD), ("b", again)))

    assert Comparison(adapter, old, new, "1.0.0").differences == []
    assert old.digest == new.digest
    changed = _release(tmp_path / "c", {**OLD, "core.py": OLD["core.py"].replace("self.row = 0", "self.row = 1")})
    assert adapter.definitions(changed).digest != old.digest


def test_digest_is_that_of_the_sources_whatever_was_read_before(adapter, tmp_path):
    annotated = {**OLD, "core.py": OLD["core.py"].replace("(self, rid)", "(self, rid: int)")}
    definitions = adapter.definitions(_release(tmp_path / "a", annotated))
    [first, again] = [adapter.definitions(definitions.folder) for _ in range(2)]
    before = first.digest

    assert [str(definition) for definition in again.by_name["__init__"]] == ["core:Request.__init__(self, rid)"]
    assert again.digest == before


def test_release_without_the_part_of_a_feature_has_not_that_feature():
    features = {"widths": Feature("has widths", lambda release: "width" in vars(release.code("Blocks")))}

    assert not ReleasedCode("1.0.0", "json", {"Blocks": ("absent:Blocks",)}, features).has("widths")
    with pytest.raises(TypeError):
        ReleasedCode("1.0.0", "json", {"Blocks": ("decoder:NaN",)}, features)


def _code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_objects(constant)


@pytest.mark.parametrize("name", ["sglang", "vllm", "vllm-cpu", "transformers"])
def test_uses_are_the_names_in_the_compiled_adapter(name):
    """Each attribute that the compiled code loads or stores is in the table, and no name is there without code."""
    adapter = adapter_of(released(name))
    attributes, named = set(), set()
    for folder in adapter.folders:
        for path in (*folder.glob("*.py"), *folder.glob("*/*.py")):
            if path.name != "mutants.py":
                for code in _code_objects(compile(path.read_bytes(), path, "exec", dont_inherit=True)):
                    named |= {*code.co_names, *code.co_varnames, *_texts(code.co_consts)}
                    attributes |= {step.argval for step in dis.get_instructions(code) if step.opname in OF_ATTRIBUTES}

    assert attributes <= {*adapter.uses}
    assert {*adapter.uses} <= {part for text in named for part in text.replace(":", ".").split(".")}
    assert adapter.places
    for place in {place for places in adapter.places.values() for place in places}:
        assert place.rpartition(":")[2] in adapter.uses, place


def _texts(constants):
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from _texts(constant)


def test_definitions_follow_conditions_and_imports(tmp_path):
    folder = _release(
        tmp_path,
        {
            "__init__.py": "",
            "a/__init__.py": "from .b import Thing\n__all__ = ['Lazy']\n",
            "a/b.py": "try:\n    class Thing: ...\nexcept ImportError:\n    Thing = None\n",
        },
    )
    found = Definitions(folder, "serve", ("a:Thing",))

    assert list(found.modules) == ["a", "a.b"]
    assert [found.has(place) for place in ("a:Thing", "a:Lazy", "a:b", "a.b:Thing", "a:Other", "c:Thing")] == [
        *(True, True, True, True),
        *(False, False),
    ]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param("try:\n    import fast\nexcept ImportError:\n    {}", id="except"),
        pytest.param("with suppress(ImportError):\n    {}", id="with"),
        pytest.param("for name in NAMES:\n    {}\nelse:\n    x = 1", id="for"),
        pytest.param("match KIND:\n    case 1:\n        x = 1\n    case _:\n        {}", id="match"),
        pytest.param("while True:\n    if FAST:\n        {}\n    break", id="nested"),
    ],
)
def test_definitions_in_each_kind_of_block_are_found(block):
    found = defined("pool", ast.parse(block.format("class Pool: ...")).body)

    assert "pool:Pool" in map(str, found)
