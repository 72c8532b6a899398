"""The search for the versions between which a failure appears and disappears."""

import shutil

import pytest

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Step, Submit
from swarden.harness.releases.bisect import Boundaries, boundaries
from tests.harness.some_targets import FIXED, TINYSERVE, swarden_in, swarden_with
from tests.harness.some_wheels import wheel

VERSIONS = [str(number) for number in range(1, 12)]
TARGET = f"""
from swarden.harness.core.errors import InvalidConfig
{FIXED}
RAISE = Hunk(LEAK.at, LEAK.before, "request.no_blocks")
OTHERWISE = Mutant("otherwise", "an abort raises an error", (RAISE,), ("stuck",))
{TINYSERVE}
    def systems(self, machine, configs, model):
        if self.release == "1.3.0" and Path("unsupported").exists():
            raise InvalidConfig("block_size is 4, want 1 for tinyserve 1.3.0")
        if self.release not in ("1.1.0", "1.2.0"):
            PLANTED.enter_context((OTHERWISE if Path("otherwise").exists() else FIXED).planted())
        return super().systems(machine, configs, model)
"""


@pytest.mark.parametrize("first", range(11))
@pytest.mark.parametrize("length", [1, 2, 5, 11])
def test_both_boundaries_are_found_with_few_replays(first, length):
    failing = VERSIONS[first : first + length]
    asked = set()

    def fails(version):
        asked.add(version)
        return version in failing

    for known in failing:
        asked.clear()
        found = boundaries(VERSIONS, known, fails)
        after = VERSIONS[first + length] if first + length < len(VERSIONS) else None
        assert found == Boundaries(failing[0] if first else None, after)
        assert len(asked) <= 8


@pytest.mark.parametrize("unable", [{"3"}, {"1", "2"}, {"3", "7", "10"}, {"1", "2", "3", "4"}])
def test_versions_that_cannot_run_the_op_log_are_neither_good_nor_bad(unable):
    def fails(version):
        return None if version in unable else 5 <= int(version) <= 8

    assert boundaries(VERSIONS, "6", fails) == Boundaries("5" if "4" not in unable else None, "9")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder where tinyserve has releases 1.0.0 to 1.3.0; 1.1.0 and 1.3.0 are installed."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "packages.txt").write_text("helper==4.0.0\n")
    wheel(folder, "helper", "4.0.0")
    for version in ("1.0.0", "1.1.0", "1.2.0", "1.3.0"):
        wheel(folder, "tinyserve", version)
    leaked = "unit_has_one_owner/blocks block/leaked"
    header = Header(engine="tinyserve", version="1.1.0", configs=[{}], expected=leaked)
    OpLog(header, [Submit(max_new_tokens=2), Step(), Abort()]).save(folder / "lost.oplog")
    run = swarden_with(folder, TARGET, {"tinyserve": "TinyTarget"})
    assert run("engines", "install", "tinyserve==1.1.0", "tinyserve==1.3.0").returncode == 0
    return folder


@pytest.fixture
def swarden(installed, tmp_path):
    """Runs a command line in a copy of that folder."""
    shutil.copytree(installed, tmp_path, dirs_exist_ok=True)
    return swarden_in(tmp_path)


def test_missing_releases_are_named_and_installed_on_demand(swarden, tmp_path):
    """Without --install the installed releases are searched; with it also those of the index."""
    known = swarden("bisect", "lost.oplog")

    assert known.stdout == "tinyserve: fails in 1.1.0 already, fixed in 1.3.0\n", known.stderr
    assert (
        "not installed: 1.2.0; 'swarden bisect FILE --install' installs those that the search needs, 1 kB each"
        in known.stderr
    )

    missing = swarden("bisect", "lost.oplog", "--from", "1.0.0")
    assert (missing.returncode, missing.stderr.splitlines()[-1]) == (
        2,
        "swarden: --from 1.0.0: is not installed, but 1.1.0, 1.3.0; "
        "'swarden bisect FILE --install' installs what is missing",
    )

    whole = swarden("bisect", "lost.oplog", "--from", "1.0.0", "--to", "1.3.0", "--install")
    assert whole.stdout == "tinyserve: fails since 1.1.0, fixed in 1.3.0\n", whole.stderr
    assert "tinyserve==1.2.0: downloads tinyserve 1.2.0 (1 kB) into engines" in whole.stderr
    assert (tmp_path / "engines/1.0.0").is_dir()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        pytest.param("unsupported", "ERROR block_size is 4, want 1 for tinyserve 1.3.0", id="cannot-run-it"),
        pytest.param("otherwise", "CHANGED AttributeError/", id="fails-otherwise"),
    ],
)
def test_release_that_cannot_be_judged_is_named(swarden, tmp_path, how, text):
    (tmp_path / how).touch()

    run = swarden("bisect", "lost.oplog")

    assert run.stdout == "tinyserve: fails in 1.1.0 already, not fixed up to 1.1.0; cannot be judged on 1.3.0\n", (
        run.stderr
    )
    assert f"1.3.0: {text}" in run.stderr


def test_installed_releases_are_searched_if_the_index_cannot_be_read(swarden, tmp_path):
    for path in tmp_path.glob("*.whl"):
        path.unlink()

    run = swarden("bisect", "lost.oplog")

    assert run.stdout == "tinyserve: fails in 1.1.0 already, fixed in 1.3.0\n", run.stderr
    assert "only installed releases are known: pip cannot list the releases of tinyserve: " in run.stderr
