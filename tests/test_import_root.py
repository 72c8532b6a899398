"""Everything is imported below `swarden`, so a folder with packages of our former names disturbs nothing."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from docs.make.release import build
from swarden.engine_under_test.config import EngineConfig

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine_under_test", "fakes", "harness", "invariants")
SPAWNED = """
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from swarden.engine_under_test.config import EngineConfig

if __name__ == "__main__":
    for method in ("spawn", "forkserver", "fork"):
        with ProcessPoolExecutor(1, get_context(method)) as pool:
            print(pool.submit(EngineConfig).result().page_size)
"""
MUTANTS = """
from swarden.harness.core.mutant import Hunk, Mutant
hunk = Hunk("swarden.engine_under_test.engine:Engine.has_work", "return self.scheduler.has_work", "return True")
busy = Mutant("busy", "made up", (hunk,), ("stuck",))
"""
SCHEDULER = "class Scheduler: ..."


@pytest.fixture
def foreign(tmp_path):
    """A folder with packages of the four names, which no process may import."""
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('a foreign package was imported')\n")
    return tmp_path


def run_in(folder, *command):
    """Run a module of Python in a folder, which Python puts first on its path."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_pytest_of_another_project_loads_the_plugin(foreign):
    (foreign / "test_other.py").write_text("def test_passes(swarden_fuzz): ...\n")

    run = run_in(foreign, "-m", "pytest", "-q", "-p", "no:cacheprovider")

    assert (run.returncode, "1 passed" in run.stdout) == (0, True), run.stdout + run.stderr


def test_fuzz_and_the_test_that_it_generates_run_our_engine(foreign):
    options = ("--machine=engine", "--mutant=B46", "--seed=1", "--stop-on-first", "--workers=1")
    fuzzed = run_in(foreign, "-m", "swarden", "fuzz", *options)
    generated = run_in(foreign, "-m", "pytest", "-q", "-p", "no:cacheprovider", ".swarden/findings")

    assert fuzzed.returncode == 1, fuzzed.stdout + fuzzed.stderr
    assert (generated.returncode, " passed" in generated.stdout) == (1, False)  # generated tests plant the mutant
    assert "foreign" not in generated.stdout


def test_new_processes_import_our_packages(foreign):
    (foreign / "spawned.py").write_text(SPAWNED)

    run = run_in(foreign, "spawned.py")

    assert run.stdout.split() == [str(EngineConfig().page_size)] * 3, run.stderr


def test_attach_imports_our_attachment(foreign):
    """It says what the scheduler of this made-up release lacks."""
    package = foreign / "sglang/srt/managers"
    package.mkdir(parents=True)
    (package / "scheduler.py").write_text(SCHEDULER)

    code = "import sglang.srt.managers.scheduler"
    run = run_in(foreign, "-m", "swarden", "attach", "sglang", "--", sys.executable, "-c", code)

    assert run.returncode == 0
    assert "NOT ATTACHED" in run.stderr
    assert "foreign" not in run.stderr


def test_mutant_file_imports_and_names_our_packages(tmp_path):
    (tmp_path / "mutants.py").write_text(MUTANTS)

    run = run_in(tmp_path, "-m", "swarden", "mutants", "run", "--mutants=mutants.py", "--seeds=1")

    assert run.returncode == 0, run.stdout + run.stderr


def test_wheel_and_sdist_have_each_file_of_the_packages(tmp_path):
    """A package that is built from a checkout without links, as a zip file of the repository, has none of them."""
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    want = set(listed.stdout.split())

    build(tmp_path)

    [wheel] = tmp_path.glob("*.whl")
    [sdist] = tmp_path.glob("*.tar.gz")
    in_wheel = {name.removeprefix("swarden/") for name in zipfile.ZipFile(wheel).namelist()}
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    in_sdist = {member.name.partition("/src/swarden/")[2] for member in members}
    assert want - in_wheel == set()
    assert want - in_sdist == set()
    assert not [member.name for member in members if member.issym()]


BUILD = "import setuptools.build_meta as backend; backend.build_wheel('.')"


@pytest.mark.parametrize("command", [("make", "-s", "fuzz"), (sys.executable, "-c", BUILD)], ids=["make", "pip"])
def test_tree_whose_links_are_text_files_is_refused_in_one_line(tmp_path, command):
    """Some programs that unpack a zip file of the repository write the target of a link into a file."""
    (tmp_path / "src/swarden").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE", "requirements.lock", "src/swarden/building.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in PACKAGES:
        (tmp_path / "src/swarden" / name).write_text(f"../../{name}")

    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run.returncode != 0
    assert "src/swarden/harness is no folder, as in a zip of the repository; use a git clone or" in run.stderr
    assert "Traceback" not in run.stderr
