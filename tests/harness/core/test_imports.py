"""Code that cannot be imported: one line with the reason, its file, its package and the remedy."""

from importlib import import_module
from unittest.mock import Mock

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.core.imports import REPAIR, importing
from swarden.harness.core.registry import UnknownEngine, target_of
from swarden.harness.core.target import MachineSpec
from swarden.harness.search.search import turns_of

TARGET = "from swarden.harness.core.target import Target\nclass Made(Target):\n"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package with an engine of the same name, whose target is `Made` in a module with this source."""

    def put(package, source):
        (tmp_path / f"{package}.py").write_text(source)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[swarden.engines]\n{package} = {package}:Made\n")
        monkeypatch.syspath_prepend(tmp_path)

    return put


@pytest.mark.parametrize(
    ("package", "source", "why"),
    [
        ("exits", "import sys\nsys.exit()", "SystemExit ({file}:2); {repair}"),
        ("exits_0", "import sys; sys.exit(0)", "SystemExit: 0 ({file}:1); {repair}"),
        ("skips", "class Skip(BaseException): ...\nraise Skip", "Skip ({file}:2); {repair}"),
        ("raises", "raise OSError('no driver,\\nno device')", "OSError: no driver, no device ({file}:1); {repair}"),
        ("needs", "import no_such", "No module named 'no_such' ({file}:1); install no_such"),
        ("lacks", "import json.no_such", "No module named 'json.no_such' ({file}:1); {repair}"),
        ("empty", "", "AttributeError: module 'empty' has no attribute 'Made'; {repair}"),
        ("other", "class Made: ...", "AttributeError: 'Made' object has no attribute 'at'; {repair}"),
        (
            "stops",
            f"{TARGET}    def build(self, config): ...\n    def at(self, version): exit(3)",
            "SystemExit: 3 ({file}:4); {repair}",
        ),
    ],
)
def test_engine_that_cannot_be_imported_is_one_line_with_its_package(tmp_path, install, package, source, why):
    install(package, source)

    with pytest.raises(UnknownEngine) as raised:
        target_of(f"{package}==1.0")

    who = f"engine {package!r} of the package {package} ({package}:Made)"
    why = why.format(file=tmp_path / f"{package}.py", repair=f"repair or uninstall {package}")
    assert str(raised.value) == f"{who} cannot be imported: {why}"


def test_target_that_builds_no_engine_is_one_line(install):
    install("hollow", f"{TARGET}    name = 'hollow'")

    with pytest.raises(UnknownEngine, match=r"TypeError: Can't instantiate abstract class Made .*build.*; repair or"):
        target_of("hollow==1.0")


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        ("torch", "pip install 'swarden[engine]'"),
        ("torch.no_such", "pip install 'swarden[engine]'"),
        ("distributed", "pip install 'swarden[dask]'"),
        ("coverage", "pip install 'swarden[coverage]'"),
        ("transformers", "install transformers"),
    ],
)
def test_remedy_is_the_extra_that_has_the_missing_package(module, remedy):
    with pytest.raises(UnknownEngine) as raised, importing("x", raises=UnknownEngine):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert raised.value.remedy == remedy


def test_interrupt_of_an_import_passes(install):
    install("interrupted", "raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        target_of("interrupted")


def test_machine_whose_module_exits_is_one_line(tmp_path, install):
    install("leaves", "exit(1)")

    with pytest.raises(UsageError) as raised:
        turns_of(Mock(machines={"engine": MachineSpec(traffic=lambda: import_module("leaves").Traffic)}), None)

    place = tmp_path / "leaves.py"
    assert str(raised.value) == f"the traffic of machine engine cannot be imported: SystemExit: 1 ({place}:1); {REPAIR}"
