"""Op-logs and fuzz tests in pytest."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Step, Submit
from swarden.harness.core.registry import OWN
from swarden.harness.search.testing import failure_text, fuzz
from tests.harness.some_processes import run_warm

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests/quality/oplogs/B18.oplog"
FUZZ = """
def test_engine_has_no_bug(swarden_fuzz):
    swarden_fuzz("swarden", machine="engine", seed=3, runs={runs})
"""
PLANT = """
import pytest
from swarden.harness.core.registry import target_of

@pytest.fixture(autouse=True)
def planted():
    with target_of("swarden").mutant("B1").planted():
        yield
"""


AGAIN = "to run it again: swarden fuzz --engine swarden --profile smoke --machine engine --runs 20 --seed 3 --workers 1"
ALONE = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # without the plugins that are installed
CRASHING = """
from swarden.harness.core.mutant import Hunk, Mutant

HUNK = Hunk(
    "swarden.engine_under_test.engine:Engine.has_work",
    "return self.scheduler.has_work",
    "return __import__('os').kill(__import__('os').getpid(), 11)",
)
crashes = Mutant("crashes", "made up: reads where nothing is", (HUNK,), ("work_makes_progress",))
"""


def pytest_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    options = ("-q", "-p", "no:cacheprovider", "-p", "swarden.harness.pytest_plugin")
    return run_warm("pytest", [*options, *arguments], cwd=folder, environment=ALONE | environment)


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


def test_op_log_that_crashes_its_process_fails_and_pytest_goes_on(tmp_path, healthy):
    (tmp_path / "mutants.py").write_text(CRASHING)
    header = Header(engine=OWN, configs=[{}], mutant="crashes", expected="crash/SIGSEGV/step")
    OpLog(header, [Submit(), Step()]).save(tmp_path / "crashing.oplog")

    run = pytest_in(tmp_path, "crashing.oplog", healthy.name, SWARDEN_MUTANTS="mutants.py")

    assert "crash/SIGSEGV/step: run in a process of its own, which was killed by SIGSEGV" in run.stdout
    assert "1 failed, 1 passed" in run.stdout


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
    assert AGAIN in run.stdout
    assert "replay: swarden replay" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param("'toy'", "engine 'toy' is not installed; install its package", id="engine"),
        pytest.param("'swarden', profile='quick'", "profile: 'quick' is not one of smoke, default", id="profile"),
        pytest.param("'swarden', second=20", "unexpected keyword argument 'second'", id="argument"),
    ],
)
def test_fuzz_test_that_asks_for_something_unknown_fails(tmp_path, arguments, told):
    (tmp_path / "test_it.py").write_text(f"def test_it(swarden_fuzz): swarden_fuzz({arguments})")

    run = pytest_in(tmp_path)

    assert run.returncode == 1
    assert told in run.stdout


def test_fuzz_test_without_a_run_fails(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "def test_it(swarden_fuzz): swarden_fuzz('swarden', machine='engine', seconds=0)"
    )

    run = pytest_in(tmp_path)

    assert run.returncode == 1
    assert "no run was made, so nothing is tested" in run.stdout


def test_draws_of_a_fuzz_test_depend_on_no_module_of_its_process(tmp_path, monkeypatch):
    """In a fuzz test Hypothesis does not read the sources of these modules; in later tests it does again."""

    def read_source():
        raise AssertionError("the source of the imported modules is read")

    monkeypatch.setattr(providers, "_get_local_constants", read_source)

    assert failure_text(fuzz(OWN, machine="engine", runs=2, out=tmp_path)) == ""
    assert providers._get_local_constants is read_source


def test_name_of_an_op_log_is_printed_in_escaped_form(tmp_path):
    log = OpLog(Header(engine=OWN, configs=[{}]), [Submit(), Step()])
    log.save(tmp_path / "a\x1b[31mb.oplog")

    run = pytest_in(tmp_path, "-v", "a\x1b[31mb.oplog")

    assert "\x1b[31mb" not in run.stdout


def test_plugin_that_is_named_and_installed_is_loaded_once(tmp_path, healthy):
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    info = tmp_path / "installed" / "swarden-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: swarden\nVersion: 1.0\n")
    listed = [f"[{group}]\nswarden = {entries[group]['swarden']}\n" for group in ("pytest11", "swarden.engines")]
    (info / "entry_points.txt").write_text("".join(listed))

    run = pytest_in(tmp_path, healthy.name, PYTHONPATH=f"{info.parent}:{ROOT}", PYTEST_DISABLE_PLUGIN_AUTOLOAD="")

    assert "1 passed" in run.stdout


def test_plugin_imports_nothing_of_swarden_before_it_is_used():
    probe = (
        "import swarden.harness.pytest_plugin, sys; "
        "print(*[name for name in sys.modules if name.startswith('swarden.harness.')])"
    )

    told = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)

    assert told.stdout.split() == ["swarden.harness.pytest_plugin"]
