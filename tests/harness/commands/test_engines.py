"""swarden engines, with an engine whose releases are small wheels in a folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.some_wheels import wheel

ROOT = Path(__file__).parents[3]
TARGET = """
from pathlib import Path
from harness.core.releases import Releases
from harness.core.origins import EngineCode
from harness.core.target import Target

class TinyTarget(Target):
    name = "tinyserve"
    code = EngineCode("tinyserve")
    releases = Releases(
        "tinyserve", Path("engines"), Path(__file__).with_name("packages.txt"), "1 kB", "2 kB", ("no_such_package",)
    )
"""
NEEDS = "tinyserve==1.2.3 also needs no_such_package in this environment: pip install 'swarden[engine]'"


@pytest.fixture
def swarden(tmp_path):
    """Runs a command line where the target of tinyserve is installed."""
    (tmp_path / "tinytarget.py").write_text(TARGET)
    (tmp_path / "packages.txt").write_text("helper==4.0.0\n")
    info = tmp_path / "tinytarget-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tinytarget\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[swarden.engines]\ntinyserve = tinytarget:TinyTarget\n")
    for name, version in {"tinyserve": "1.2.3", "helper": "4.0.0"}.items():
        wheel(tmp_path, name, version)

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "harness.cli", *arguments],
            cwd=tmp_path,
            env=os.environ
            | {
                "PYTHONPATH": f"{ROOT}:{tmp_path}",
                "COLUMNS": "240",
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(tmp_path),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def listed(run):
    [row] = [row for row in json.loads(run.stdout)["engines"] if row["name"] == "tinyserve"]
    return row["in_environment"], row["releases"]


def test_release_is_installed_once_listed_and_removed(swarden):
    first, again = swarden("engines", "install", "tinyserve==1.2.3"), swarden("engines", "install", "tinyserve==1.2.3")

    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    download = "tinyserve 1.2.3 (1 kB) and the packages that its releases share (1, 2 kB) into engines"
    assert first.stderr.splitlines() == [f"tinyserve==1.2.3: downloads {download}", NEEDS]
    assert first.stdout == "tinyserve==1.2.3 is installed; use it with --engine tinyserve==1.2.3\n"
    assert again.stdout == "tinyserve==1.2.3 is already installed in engines/1.2.3\n"
    assert listed(swarden("engines", "--json")) == listed(swarden("engines", "list", "--json")) == (None, ["1.2.3"])

    assert swarden("engines", "remove", "tinyserve==1.2.3").returncode == 0
    assert "  releases: none; run: swarden engines install tinyserve==VERSION" in swarden("engines").stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param(
            "engines install tinyserve", "tinyserve: which release? Want tinyserve==VERSION; ", id="no-version"
        ),
        pytest.param(
            "engines install tinyserve==9.9.9", "pip cannot install tinyserve==9.9.9: No matching ", id="unknown"
        ),
        pytest.param("engines remove tinyserve==1.2.3", "tinyserve==1.2.3 is not installed in engines; ", id="absent"),
        pytest.param(
            "fuzz --engine tinyserve==1.2.3",
            "tinyserve==1.2.3 is not installed; run: swarden engines install tinyserve==1.2.3",
            id="fuzz",
        ),
    ],
)
def test_release_that_is_not_here_is_one_line_and_exits_with_two(swarden, line, told):
    run = swarden(*line.split())

    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith(f"swarden: {told}")
    assert "Traceback" not in run.stderr


def test_replay_names_the_command_that_installs_its_release(swarden, tmp_path):
    (tmp_path / "log.oplog").write_text(
        '{"format":2,"engine":"tinyserve","version":"1.2.3","configs":[{}]}\n{"op":"flush"}\n'
    )

    run = swarden("replay", "log.oplog")

    assert run.returncode == 2
    assert "here is none; run: swarden engines install tinyserve==1.2.3, or give --engine tinyserve" in run.stdout
