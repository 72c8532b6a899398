"""Wheel and sdist as a stranger gets them: `make test-package`. It needs an index of packages, and Chromium."""

import os
import re
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from pathlib import Path

import pytest

from docs.make.pages import CHROMIUM, PICTURE, ROOT
from docs.make.release import build

FORMER_NAMES = ("engine_under_test", "fakes", "harness", "invariants")
MAX_MEGABYTES = 80
ADDRESS = "https://example.org/owner/swarden"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    build(folder)
    return folder


def environment_with(folder: Path, *requirements: Path | str) -> Path:
    """An environment with these packages from the index and nothing else; returns its programs."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    install = [programs / "pip", "--disable-pip-version-check", "install", "-q", *requirements]
    subprocess.run(install, check=True, capture_output=True)
    return programs


@pytest.fixture(scope="module", params=["*.whl", "*.tar.gz"], ids=["wheel", "sdist"])
def demo(request, built, tmp_path_factory):
    """The demo that ran beside foreign packages of the former names: the run, and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("demo")
    for name in FORMER_NAMES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise RuntimeError('a foreign package was imported')\n")
    [package] = built.glob(request.param)
    programs = environment_with(folder / "environment", package)
    started = time.monotonic()
    run = subprocess.run(
        [programs / "swarden", "demo"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    size = sum(path.stat().st_size for path in (folder / "environment").rglob("*") if path.is_file()) / 1e6
    sys.stdout.write(f"{package.name}: demo {time.monotonic() - started:.1f} s, {size:.0f} MB with Python and pip\n")
    return run, folder


def test_demo_finds_its_leak_in_an_empty_environment(demo):
    run, folder = demo

    assert run.returncode == 0, run.stdout + run.stderr
    assert "no owner" in run.stdout
    assert len(list(folder.glob(".swarden/demo/*.oplog"))) == 1


def test_environment_is_small_and_without_torch(demo):
    _, folder = demo
    packages = next((folder / "environment").glob("lib/*/site-packages"))

    own = [path for path in packages.rglob("*") if path.is_file() and packages / "pip" not in path.parents]
    assert sum(path.stat().st_size for path in own) < MAX_MEGABYTES * 1e6
    assert not (packages / "torch").exists()


def test_page_of_the_demo_is_drawn_by_a_browser(demo):
    _, folder = demo
    [page] = folder.glob(".swarden/demo/*.html")
    options = [f"--user-data-dir={folder}/profile", "--dump-dom", page.as_uri()]

    run = subprocess.run([*CHROMIUM, *options], capture_output=True, text=True, check=True)

    assert "Operations and pools" in run.stdout
    assert re.search(r"<b>leaked</b>", run.stdout)


def test_metadata_is_accepted_by_an_index(built, tmp_path):
    programs = environment_with(tmp_path / "environment", "twine")

    run = subprocess.run(
        [programs / "twine", "check", "--strict", *built.iterdir()], capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stdout


def test_sdist_has_no_tests_and_wheel_only_our_package(built):
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        in_sdist = [name.partition("/")[2] for name in archive.getnames()]

    assert [name for name in in_sdist if name.startswith("tests")] == []
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"swarden"}


def test_wheel_has_the_known_bugs_of_each_engine(built):
    [wheel] = built.glob("*.whl")
    names = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if "/findings/" in name}

    assert names == {path.name for path in (ROOT / "harness/engines").glob("*/findings/*")}


def test_published_metadata_has_links_to_the_repository_and_the_command_of_the_index(tmp_path):
    build(tmp_path, repository=ADDRESS, is_on_index=True)

    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode()
    assert f"Project-URL: Repository, {ADDRESS}" in text
    assert f"]({ADDRESS}/raw/main/docs/{PICTURE.name})" in text
    assert re.findall(r"\]\((?!https:|#)[^)]*\)", text) == []
    assert "```\nuvx swarden demo" in text
