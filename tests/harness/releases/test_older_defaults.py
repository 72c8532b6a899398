"""Defaults that a release has changed; the releases are made up."""

import json
import os

import pytest

from swarden.harness.core.origins import EngineCode
from swarden.harness.core.releases import Releases
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.kit.released_code import BootedRelease, ReleasedCode
from swarden.harness.kit.settings import Settings
from swarden.harness.releases.older_defaults import OlderDefaults, older_defaults
from tests.harness.some_targets import swarden_with

TARGET = """
from contextlib import ExitStack
from pathlib import Path
from swarden.harness.core.releases import Releases
from swarden.harness.engines.demo.target import DemoTarget
from swarden.harness.kit.released_code import BootedRelease, ReleasedCode
from swarden.harness.kit.released import ReleasedTarget

PLACES = {"Config": ("config:Config",)}
PLANTED = ExitStack()

class TinyTarget(ReleasedTarget, DemoTarget):
    name = "tinyserve"
    releases = Releases("tinyserve", Path("engines"), Path(__file__).with_name("packages.txt"), "1 kB", "2 kB")
    load = BootedRelease("tinyserve", lambda version, folders: load(version, folders), "tinyserve", PLACES)

    def build(self, config):
        if self.booted().code("Config")().adds_a_token:
            PLANTED.enter_context(self.mutant("one-token-too-many").planted())
        else:
            PLANTED.close()
        return super().build(config)

def load(version, folders):
    import sys
    sys.path[:0] = map(str, folders)
    return ReleasedCode(version, "tinyserve", PLACES, {})
"""
CONFIG = "from dataclasses import dataclass\n\n\n@dataclass\nclass Config:\n    adds_a_token: bool = {}\n"
PLACES = {"Config": ("config:CacheConfig", "settings:Config")}
OLD = "class Config:\n    ratio: float = 2.0\n    name: str = 'a'\n    size: int = 4\n"
VARIABLES = (
    "class Envs:\n    TINY_DEFERS = EnvBool({0})\n    TINY_OTHER = EnvBool(True)\nX = os.getenv('TINY_X', '{0}')\n"
)
NEW = (
    "from dataclasses import dataclass\n\n\n@dataclass\nclass CacheConfig:\n"
    "    name: str = 'a'\n    ratio: float | None = None\n    size: int = max(4, 8)\n"
)


@pytest.fixture
def releases(tmp_path, monkeypatch):
    """The targets of an older and a newer release."""
    for version, module, text in (("1.0.0", "settings", OLD), ("1.1.0", "config", NEW)):
        folder = tmp_path / version / "tinydefaults"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / f"{module}.py").write_text(text)
        (folder / "environ.py").write_text(VARIABLES.format(version == "1.1.0"))
    (tmp_path / "packages").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "1.1.0"))

    class Target(ReleasedTarget[ReleasedCode]):
        name = "tinydefaults"
        code = EngineCode("tinydefaults")
        config_type = Settings
        load = BootedRelease(
            "tinydefaults", lambda version, _: ReleasedCode(version, "tinydefaults", PLACES, {}), "", PLACES
        )

        def build(self, config):
            raise NotImplementedError

        def check_linked(self, configs):
            raise NotImplementedError

    Target.releases = Releases("tinydefaults", tmp_path, tmp_path / "packages.txt", "1 kB", "2 kB")
    return Target("1.0.0"), Target("1.1.0")


def test_default_that_is_another_literal_has_changed(releases):
    changed = older_defaults(*releases)

    assert changed == OlderDefaults({"Config": {"ratio": 2.0}}, {"TINY_DEFERS": False, "TINY_X": "False"})
    assert str(changed) == "Config.ratio 2.0, TINY_DEFERS False, TINY_X 'False'"


def test_older_default_is_that_of_the_fields_that_are_left_out(releases):
    new = releases[1]
    kind = new.booted().code("Config")
    with OlderDefaults({"Config": {"ratio": 2.0, "gone": 1}}, {})(new):
        planted = [kind().ratio, kind("b").ratio, kind(ratio=3.0).ratio, kind("b", 3.0).ratio]

    assert planted == [2.0, 2.0, 3.0, 3.0]
    assert kind().ratio is None


def test_older_default_of_a_variable_that_is_not_set_is_set(releases, monkeypatch):
    monkeypatch.setenv("TINY_X", "1")
    with OlderDefaults({}, {"TINY_DEFERS": False, "TINY_X": "0"})(releases[1]):
        planted = os.environ["TINY_DEFERS"], os.environ["TINY_X"]

    assert planted == ("False", "1")
    assert "TINY_DEFERS" not in os.environ


def test_log_that_fails_with_the_older_default_has_moved(tmp_path):
    (tmp_path / "packages.txt").write_text("helper==4.0.0\n")
    (tmp_path / "engines/packages").mkdir(parents=True)
    for version, default in (("1.0.0", True), ("1.1.0", False)):
        folder = tmp_path / f"engines/{version}/tinyserve"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "config.py").write_text(CONFIG.format(default))

    run = swarden_with(tmp_path, TARGET, {"tinyserve": "TinyTarget"})("backtest", "tinyserve", "--runs", "32")

    assert run.returncode == 0, run.stderr
    [pair] = json.loads((tmp_path / ".swarden/backtest/tinyserve/backtest.json").read_text())
    assert ("moved", "its log fails with the older defaults: Config.adds_a_token True") in [
        (judged["outcome"], judged["why"]) for judged in pair["judged"]
    ]
