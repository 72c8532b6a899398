"""Command lines where further targets are installed, from a module in a folder."""

from pathlib import Path

from tests.harness.some_processes import ROOT, run_warm

# The leak of the demo's engine without it.
FIXED = """
from swarden.harness.core.mutant import Hunk, Mutant

LEAK = Hunk("swarden.harness.engines.demo.engine:Engine.abort", "request.blocks[:num_full]", "request.blocks")
FIXED = Mutant("fixed", "the leak is fixed", (LEAK,), ("stuck",))
"""
TINYSERVE = """
from contextlib import ExitStack
from pathlib import Path
from swarden.harness.core.releases import Releases
from swarden.harness.engines.demo.target import DemoTarget

PLANTED = ExitStack()
RELEASES = Releases("tinyserve", Path("engines"), Path(__file__).with_name("packages.txt"), "1 kB", "2 kB")

class TinyTarget(DemoTarget):
    name = "tinyserve"
    releases = RELEASES

    def __init__(self, release=""):
        self.release = release

    def at(self, version):
        return TinyTarget(version) if version in RELEASES.installed() else None

    def version(self):
        return self.release
"""  # releases of the demo's engine; what follows are further functions of the class


def swarden_with(folder, source, targets):
    """Runs a command line in the folder, where the classes of a module with this source are installed as targets.

    pip finds the wheels of the folder, and nothing else.
    """
    (folder / "some_target.py").write_text(source)
    info = folder / "some_target-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some_target\nVersion: 1.0\n")
    entries = [f"{name} = some_target:{target}\n" for name, target in targets.items()]
    (info / "entry_points.txt").write_text("".join(["[swarden.engines]\n", *entries]))
    return swarden_in(folder)


def swarden_in(folder):
    """Runs a command line where the packages and the wheels of the folder are installed."""
    settings = {"PYTHONPATH": f"{ROOT}:{folder}", "COLUMNS": "240", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
    return lambda *arguments: run_warm("swarden.harness.cli", arguments, cwd=folder, environment=settings)


def write_blockserve(folder: Path) -> None:
    """A package of a user, `blockserve`: the demo's engine and target under other names (docs/your-engine.md)."""
    (folder / "blockserve").mkdir()
    (folder / "blockserve/__init__.py").touch()
    for name in ("engine.py", "mutants.py", "target.py"):
        source = (
            (ROOT / "harness/engines/demo" / name).read_text().replace("swarden.harness.engines.demo", "blockserve")
        )
        (folder / "blockserve" / name).write_text(source.replace('name = "demo"', 'name = "blockserve"'))
