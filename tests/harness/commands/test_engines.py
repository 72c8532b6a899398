"""swarden engines, with an engine whose releases are small wheels in a folder."""

import json

import pytest

from tests.harness.some_targets import swarden_with
from tests.harness.some_wheels import wheel

TARGET = """
from pathlib import Path
from swarden.harness.core.releases import Releases
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.target import Target

class TinyTarget(Target):
    name = "tinyserve"
    code = EngineCode("tinyserve")
    releases = Releases(
        "tinyserve", Path("engines"), Path(__file__).with_name("packages.txt"), "1 kB", "2 kB", ("no_such_package",)
    )

    def build(self, config):
        raise NotImplementedError
"""
NEEDS = "tinyserve==1.2.3 also needs no_such_package in this environment: pip install 'swarden[engine]'"


@pytest.fixture
def swarden(tmp_path):
    """Runs a command line where the target of tinyserve is installed."""
    (tmp_path / "packages.txt").write_text("helper==4.0.0\n")
    for name, version in {"tinyserve": "1.2.3", "helper": "4.0.0"}.items():
        wheel(tmp_path, name, version)
    return swarden_with(tmp_path, TARGET, {"tinyserve": "TinyTarget"})


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
        ("engines install tinyserve", "tinyserve: which release? Want tinyserve==VERSION, or "),
        ("engines install tinyserve==9.9.9", "pip cannot install tinyserve==9.9.9: No matching "),
        ("engines remove tinyserve==1.2.3", "tinyserve==1.2.3 is not installed in engines; "),
        ("engines install tinyserve==checkout-a tinyserve==checkout-b --from DIR", "--from: DIR is one checkout"),
        ("fuzz --engine tinyserve==1.2.3", "tinyserve==1.2.3 is not installed; run: swarden engines install"),
    ],
)
def test_release_that_is_not_here_is_one_line_and_exits_with_two(swarden, line, told):
    run = swarden(*line.split())

    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith(f"swarden: {told}")
    assert "Traceback" not in run.stderr


def test_replay_names_the_command_that_installs_its_release(swarden, tmp_path):
    (tmp_path / "log.oplog").write_text(
        '{"format":3,"engine":"tinyserve","version":"1.2.3","configs":[{}]}\n{"op":"flush"}\n'
    )

    run = swarden("replay", "log.oplog")

    assert run.returncode == 2
    assert "here is none; run: swarden engines install tinyserve==1.2.3, or give --engine tinyserve" in run.stdout
