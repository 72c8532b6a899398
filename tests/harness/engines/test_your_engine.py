"""The demo's engine, copied into a package as docs/your-engine.md says, is found and fuzzed, without torch."""

import os
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.harness.some_targets import write_blockserve

PROJECT = """
[build-system]
requires = ["setuptools>=77.0.3"]
build-backend = "setuptools.build_meta"

[project]
name = "blockserve"
version = "1.2.0"

[project.entry-points."swarden.engines"]
blockserve = "blockserve.target:DemoTarget"

[tool.setuptools]
packages = ["blockserve"]
"""
BUG = "request.blocks[:num_full], request.id)  # the bug: a block that is not full leaks"
FIX = "request.blocks, request.id)"


def distributions_for(*names: str) -> set[str]:
    """These distributions and their dependencies, without the extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            needs = [Requirement(one) for one in requires(name) or ()]
            waiting += [one.name for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with swarden's core and pytest, copied from this one, and blockserve, installed by pip."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False)
    site = next(place.glob("lib/python*/site-packages"))
    for name in distributions_for("swarden", "pytest"):
        for file in distribution(name).files or ():
            source = Path(str(distribution(name).locate_file(file)))
            if ".." not in file.parts and source.suffix != ".pyc" and source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, site / file)
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    package = tmp_path_factory.mktemp("package")
    write_blockserve(package)
    (package / "pyproject.toml").write_text(PROJECT)
    subprocess.run([*install, "--no-build-isolation", "--target", site, package], check=True, timeout=1200)
    return place


def run(environment: Path, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = [str(environment / "bin/python"), "-m", *command]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_", "PYTEST"))}
    return subprocess.run(program, cwd=cwd, env=clean, capture_output=True, text=True, timeout=1200, check=False)


def test_example_engine_is_fuzzed_and_its_finding_replayed(environment, tmp_path):
    swarden = ("swarden.harness.cli",)
    listed = run(environment, *swarden, "engines", cwd=tmp_path)
    assert "blockserve 1.2.0" in listed.stdout

    fuzzed = run(
        environment, *swarden, "fuzz", "--engine", "blockserve", "--profile", "smoke", "--runs", "16", "--workers", "1",
        "--seed", "7", "--out", "found", cwd=tmp_path,
    )  # fmt: skip
    assert fuzzed.returncode == 1, fuzzed.stderr
    assert "no owner" in fuzzed.stdout
    [log] = tmp_path.glob("found/*.oplog")
    assert len(log.read_text().splitlines()) <= 6

    replayed = run(environment, *swarden, "replay", str(log), cwd=tmp_path)
    assert (replayed.returncode, "FAILED" in replayed.stdout) == (1, True)
    tested = run(environment, "pytest", "-q", "found", cwd=tmp_path)
    assert tested.returncode == 1, tested.stdout
    assert "no owner" in tested.stdout
    assert run(environment, "torch", cwd=tmp_path).stderr.endswith("No module named torch\n")

    fix_the_bug(environment)
    replayed = run(environment, *swarden, "replay", str(log), cwd=tmp_path)
    assert (replayed.returncode, "FIXED" in replayed.stdout) == (0, True), replayed.stdout
    tested = run(environment, "pytest", "-q", "found", cwd=tmp_path)
    assert tested.returncode == 0, tested.stdout


def fix_the_bug(environment: Path) -> None:
    """Fix the planted bug in the installed package."""
    [source] = environment.glob("lib/python*/site-packages/blockserve/engine.py")
    text = source.read_text()
    assert BUG in text
    source.write_text(text.replace(BUG, FIX))
