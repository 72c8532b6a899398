"""swarden engines check, with an engine whose releases are folders."""

import json

import pytest

from tests.harness.some_targets import swarden_with

TARGET = """
from pathlib import Path
from typing import Annotated
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.releases import Releases
from swarden.harness.kit.released_code import BootedRelease, Feature, ReleasedCode
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.kit.settings import IfReleaseHas, Settings

FEATURES = {"events": Feature("events are published", lambda release: release.code("Publisher") is not None)}
PLACES = {"Pool": ("pool:Pool",), "Publisher": ("events:Publisher",)}

def load(version, folders):
    return ReleasedCode(version, "tinyserve", PLACES, FEATURES)

class TinyConfig(Settings, frozen=True):
    kv_events: Annotated[bool, IfReleaseHas("events")] = False

class TinyTarget(ReleasedTarget):
    name = "tinyserve"
    code = EngineCode("tinyserve")
    config_type = TinyConfig
    load = BootedRelease("tinyserve", load, places=PLACES)
    releases = Releases("tinyserve", Path("engines"), Path(__file__).with_name("packages.txt"), "1 kB", "2 kB")

    def build(self, config):
        return self.booted().code("Pool")().grab(1)
"""
POOL = "class Pool:\n    def grab(self, count{}): ...\n"


@pytest.fixture
def swarden(tmp_path):
    (tmp_path / "packages.txt").write_text("helper==4.0.0\n")
    (tmp_path / "engines/packages").mkdir(parents=True)
    for version, more, publisher in (("1.0.0", "", "class Publisher: ..."), ("1.1.0", ", owner", "")):
        folder = tmp_path / f"engines/{version}/tinyserve"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "events.py").write_text(publisher)
        (folder / "pool.py").write_text(POOL.format(more) + ("\n\nclass Ring(Pool): ...\n" if more else ""))
    return swarden_with(tmp_path, TARGET, {"tinyserve": "TinyTarget"})


def test_release_is_compared_with_the_one_before_it(swarden, tmp_path):
    file = f"{tmp_path.name}/some_target.py"
    run, told = (
        swarden("engines", "check", "tinyserve==1.1.0"),
        swarden("engines", "check", "tinyserve==1.1.0", "--json"),
    )

    assert run.returncode == told.returncode == 5, run.stderr + told.stderr
    assert run.stdout.splitlines() == [
        "tinyserve==1.1.0, beside 1.0.0: the adapter reads 3 names of 2 modules",
        f"missing   Publisher (events:Publisher); used at {file}:10",
        "          not drawn without it: kv_events",
        f"signature pool:Pool.grab(self, count); now (self, count, owner); used at {file}:27 TinyTarget.build",
        "new       pool: Ring(Pool)",
        "1 missing, 1 signature, 1 new; the adapter does not read what is new",
    ]
    assert [line["kind"] for line in json.loads(told.stdout)["differences"]] == ["missing", "signature", "new"]


def test_names_that_one_class_has_lost_are_one_line(swarden, tmp_path):
    (tmp_path / "reader.py").write_text("def lens(pool):\n    return pool.full, pool.swa, pool.row, pool.host\n")
    with (tmp_path / "engines/1.0.0/tinyserve/pool.py").open("a") as file:
        file.write("    full = swa = row = host = 0\n")
    run = swarden("engines", "check", "tinyserve==1.1.0")

    lost = f"gone      pool:Pool: full, host, row, swa; used at {tmp_path.name}/reader.py:2 lens"
    assert [line for line in run.stdout.splitlines() if line.startswith("gone")] == [lost]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param("tinyserve==1.0.0", "tinyserve==1.0.0: no older release is installed", id="none-older"),
        pytest.param("tinyserve==1.1.0 --against 0.9.0", "tinyserve==0.9.0 is not installed; run", id="absent"),
        pytest.param("demo", "demo: its target is no ReleasedTarget", id="no-releases"),
    ],
)
def test_release_that_cannot_be_compared_is_one_line_with_the_remedy(swarden, line, told):
    run = swarden("engines", "check", *line.split())

    assert (run.returncode, len(run.stderr.splitlines())) == (2, 1)
    assert run.stderr.startswith(f"swarden: {told}")
