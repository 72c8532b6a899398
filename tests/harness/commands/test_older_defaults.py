"""Defaults that a release has changed; the releases are made up."""

import pytest

from swarden.harness.commands.older_defaults import OlderDefaults, older_defaults
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.releases import Releases
from swarden.harness.kit.parts import BootedRelease, ReleaseParts
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.kit.settings import Settings

PARTS = {"Config": ("config:CacheConfig", "settings:Config")}
OLD = "class Config:\n    ratio: float = 2.0\n    name: str = 'a'\n    size: int = 4\n"
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
    (tmp_path / "packages").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "1.1.0"))

    class Target(ReleasedTarget[ReleaseParts]):
        name = "tinydefaults"
        code = EngineCode("tinydefaults")
        config_type = Settings
        load = BootedRelease(
            "tinydefaults", lambda version, _: ReleaseParts(version, "tinydefaults", PARTS, {}), "", PARTS
        )

        def build(self, config):
            raise NotImplementedError

        def check_linked(self, configs):
            raise NotImplementedError

    Target.releases = Releases("tinydefaults", tmp_path, tmp_path / "packages.txt", "1 kB", "2 kB")
    return Target("1.0.0"), Target("1.1.0")


def test_default_that_is_another_literal_has_changed(releases):
    changed = older_defaults(*releases)

    assert changed == OlderDefaults({"Config": {"ratio": 2.0}})
    assert str(changed) == "Config.ratio 2.0"


def test_older_default_is_that_of_the_fields_that_are_left_out(releases):
    new = releases[1]
    kind = new.booted().part("Config")
    with OlderDefaults({"Config": {"ratio": 2.0, "gone": 1}})(new):
        planted = [kind().ratio, kind("b").ratio, kind(ratio=3.0).ratio, kind("b", 3.0).ratio]

    assert planted == [2.0, 2.0, 3.0, 3.0]
    assert kind().ratio is None
