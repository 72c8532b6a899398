"""Op-logs and fuzz tests in pytest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_under_test.config import EngineConfig
from harness.core.oplog import Header, OpLog
from harness.core.ops import Drain, Step, Submit
from harness.core.registry import OWN

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests/quality/oplogs/B18.oplog"
FUZZ = """
def test_engine_has_no_bug(swarden_fuzz):
    swarden_fuzz("swarden", machine="ledger", seed=3, runs={runs})
"""
PLANT = """
import pytest
from harness.core.registry import target_of

@pytest.fixture(autouse=True)
def planted():
    with target_of("swarden").mutant("B1").planted():
        yield
"""


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "harness.pytest_plugin", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def healthy(tmp_path):
    path = tmp_path / "healthy.oplog"
    OpLog(Header(engine=OWN, configs=[EngineConfig().to_mapping()]), [Submit(), Step(), Drain()]).save(path)
    return path


def test_op_log_that_does_not_fail_passes(tmp_path, healthy):
    assert pytest_in(tmp_path, healthy.name).returncode == 0


def test_op_log_that_fails_tells_its_story(tmp_path):
    run = pytest_in(tmp_path, str(KEPT))

    assert run.returncode == 1
    assert "mutant: B18 is planted in" in run.stdout
    assert "capacity" in run.stdout


def test_op_log_of_an_engine_that_is_not_installed_does_not_pass(tmp_path, healthy):
    healthy.write_text(healthy.read_text().replace('"swarden"', '"toy"'))

    run = pytest_in(tmp_path, "healthy.oplog")

    assert run.returncode == 1
    assert "engine 'toy' is not installed; install its package" in run.stdout


def test_op_logs_of_a_folder_are_tests_only_where_that_is_asked_for(tmp_path, healthy):
    assert pytest_in(healthy.parent, ".").returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert pytest_in(tmp_path, "--swarden-oplogs", ".").returncode == 0


def test_fuzz_test_of_a_healthy_engine_passes(tmp_path):
    (tmp_path / "test_it.py").write_text(FUZZ.format(runs=3))

    assert pytest_in(tmp_path).returncode == 0


def test_fuzz_test_fails_with_the_stories_of_its_findings_under_xdist(tmp_path):
    (tmp_path / "test_it.py").write_text(FUZZ.format(runs=20))
    (tmp_path / "conftest.py").write_text(PLANT)

    run = pytest_in(tmp_path, "-p", "xdist", "-n", "2")

    assert run.returncode == 1
    assert "to run it again: swarden fuzz --engine swarden --machine ledger" in run.stdout
    assert "replay: swarden replay" in run.stdout


def test_plugin_imports_nothing_of_swarden_before_it_is_used():
    probe = "import harness.pytest_plugin, sys; print(*[name for name in sys.modules if name.startswith('harness.')])"

    told = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["harness.pytest_plugin"]
