"""The target of SGLang where no release is imported: the hash of a build, and errors for missing packages."""

import re

import pytest

from swarden.harness.core import releases
from swarden.harness.core.changes import Changes
from swarden.harness.core.errors import UsageError
from swarden.harness.core.releases import CHECKOUT, InEnvironment
from swarden.harness.engines.sglang.target import SGLANG, SglangTarget
from swarden.harness.engines.sglang.worker_mutants import OF_ATTENTION
from swarden.harness.kit import released


@pytest.fixture(autouse=True)
def _empty(monkeypatch, tmp_path):
    """Neither the environment nor the project has a release."""
    monkeypatch.chdir(tmp_path)
    for module in (released, releases):
        monkeypatch.setattr(module, "in_environment", {}.get)
    yield
    released._hash_of.cache_clear()


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Lets the environment have an sglang of this version, with one source; returns the folder of its sources."""

    def provide(version, *, is_release):
        folder = tmp_path / "sglang"
        folder.mkdir()
        (folder / "scheduler.py").write_text("pages = 1\n")
        for module in (released, releases):
            monkeypatch.setattr(module, "in_environment", {"sglang": InEnvironment(version, folder, is_release)}.get)
        return folder

    return provide


@pytest.fixture
def installed(tmp_path):
    """Two releases that the project has installed."""
    for place in ("0.5.17/sglang", "0.5.23/sglang", "packages"):
        (tmp_path / SGLANG.root / place).mkdir(parents=True)


@pytest.mark.parametrize(("is_release", "differs"), [(False, True), (True, False)], ids=["checkout", "release"])
def test_sources_of_a_checkout_are_hashed_and_those_of_a_release_are_not(environment, is_release, differs):
    folder = environment("0.5.23", is_release=is_release)
    before = SglangTarget().source_hash()

    (folder / "scheduler.py").write_text("pages = 2\n")
    released._hash_of.cache_clear()

    assert (SglangTarget().source_hash() != before) == differs


def test_two_releases_are_two_builds(environment):
    environment("0.5.23", is_release=True)

    assert SglangTarget("0.5.23").source_hash() != SglangTarget("0.5.17").source_hash()


@pytest.mark.usefixtures("installed")
def test_environment_has_precedence_over_installed_releases(environment):
    assert SglangTarget().version() == "0.5.23"

    environment(CHECKOUT, is_release=False)

    assert SglangTarget().version() == CHECKOUT
    assert [SglangTarget().at(version) is not None for version in (CHECKOUT, "0.5.17", "0.5.13")] == [True, True, False]


def test_missing_release_is_told_with_the_command():
    with pytest.raises(UsageError, match=r"^no release of sglang is installed; run: swarden engines install sglang=="):
        SglangTarget().prepare_process()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("absent", "remedy"),
    [
        ("torch", "pip install 'swarden[engine]'"),
        ("transformers", "run: swarden engines remove sglang==0.5.23, and install it again"),
    ],
)
def test_missing_package_is_told_with_the_remedy(monkeypatch, absent, remedy):
    def boot(_version, folders):
        assert [folder.name for folder in folders] == ["0.5.23", "packages"]
        raise ModuleNotFoundError(f"No module named {absent!r}", name=absent)

    monkeypatch.setattr(SglangTarget, "load", staticmethod(boot))

    with pytest.raises(UsageError) as told:
        SglangTarget().prepare_process()

    what, _, told_remedy = str(told.value).partition("; ")
    assert what.startswith(f"sglang 0.5.23 cannot be imported: No module named {absent!r} ({__file__}:")
    assert told_remedy == remedy


def test_shared_packages_are_pinned():
    lines = [line for line in SGLANG.requirements.read_text().splitlines() if not line.startswith("#")]

    assert [line for line in lines if not re.fullmatch(r"[\w-]+==[\w.]+", line)] == []
    assert "torch" not in {line.partition("==")[0] for line in lines}


def test_fix_that_has_come_with_a_mutant_is_not_planted_twice():
    target = SglangTarget("0.5.23")

    [patch] = Changes("prompts-read-the-first-row", (OF_ATTENTION.name,)).patches(target)

    assert patch.name == "prompts-read-the-first-row"
