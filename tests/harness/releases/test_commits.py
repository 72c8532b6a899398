"""swarden bisect --git, over commits of the demo's engine: one of them plants its leak."""

import json
import shutil
import subprocess

import pytest

from swarden.harness.core.oplog import Header, OpLog
from tests.harness.commands.test_gate import BROKEN, FIXED, OPS, SOURCE, TARGET
from tests.harness.some_targets import swarden_with
from tests.harness.some_wheels import wheel

UNREADABLE = FIXED.replace("class Engine:", "class Engine(:")
OTHERWISE = SOURCE.replace(*BROKEN)
GOOD, BAD = FIXED, SOURCE


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commits")
    (folder / "packages.txt").write_text("helper==4.0.0\n")
    wheel(folder, "helper", "4.0.0")
    log = OpLog(Header(engine="tinyserve", version="", configs=[{}], expected="unit_has_one_owner/x/leaked"), OPS)
    log.save(folder / "lost.oplog")
    return folder


@pytest.fixture(scope="module")
def swarden(folder):
    return swarden_with(folder, TARGET, {"tinyserve": "TinyTarget"})


@pytest.fixture
def history(folder):
    """Commits these sources of the engine; returns the names of the commits."""
    place = folder / "checkout"

    def git(*arguments):
        command = ["git", "-C", str(place), "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(*sources):
        (place / "src/tinyserve").mkdir(parents=True)
        git("init", "--quiet")
        (place / "src/tinyserve/__init__.py").touch()
        for number, source in enumerate(sources):
            (place / "src/tinyserve/engine.py").write_text(f"{source}# commit {number}\n")
            git("add", ".")
            git("commit", "--quiet", "--message", f"commit {number}")
        return git("rev-list", "--reverse", "--abbrev-commit", "--abbrev=12", "HEAD").split()

    yield commit
    shutil.rmtree(place)


@pytest.mark.parametrize(
    ("sources", "unknown"),
    [
        pytest.param([GOOD, GOOD, BAD, BAD], [], id="all-run"),
        pytest.param([GOOD, UNREADABLE, OTHERWISE, BAD], [2, 1], id="skipped-before-the-first"),
        pytest.param([GOOD, BAD, BAD, OTHERWISE, BAD], [], id="fails-otherwise-among-bad-ones"),
    ],
)
def test_first_commit_that_fails_is_found_and_those_that_cannot_be_judged_are_named(
    swarden, history, folder, sources, unknown
):
    """The checkout is as it was."""
    commits, first = history(*sources), sources.index(BAD)

    run = swarden("bisect", "lost.oplog", "--git", "checkout", commits[0], "HEAD")

    since, subject, *rest = run.stdout.splitlines() or [run.stderr]
    assert since.startswith(f"tinyserve: fails since {commits[first]}, "), run.stderr
    assert subject.startswith(f"{commits[first]} commit {first} (a, ")
    assert [all(commits[ordinal] in line for ordinal in unknown) for line in rest] == [True] * bool(unknown)
    assert not (folder / "checkout/.git/worktrees").exists()
    assert subprocess.check_output(["git", "-C", folder / "checkout", "status", "--short"]) == b""


def test_commits_are_data_for_scripts(swarden, history):
    commits = history(GOOD, BAD)

    run = swarden("bisect", "lost.oplog", "--git", "checkout", *commits, "--all", "--json")

    assert json.loads(run.stdout)["first_failing"] == commits[1], run.stderr
    assert json.loads(run.stdout)["verdicts"] == dict(zip(commits, ("FIXED", "FAILED"), strict=True))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        pytest.param(["checkout", "HEAD", "HEAD~1"], "--git: HEAD~1 is not later than HEAD", id="exchanged"),
        pytest.param(["checkout", "nothing", "HEAD"], "--git: fatal: ", id="no-revision"),
        pytest.param(["nowhere", "HEAD~1", "HEAD"], "--git: fatal: ", id="no-checkout"),
        pytest.param(["checkout", "HEAD~1", "HEAD", "--to", "1.0.0"], "leave out --from, --to", id="a-release"),
        pytest.param(["checkout", "HEAD~2", "HEAD~1"], "want a log that fails there", id="bad-one-is-good"),
    ],
)
def test_commits_that_cannot_be_searched_are_refused(swarden, history, options, what):
    history(GOOD, GOOD, BAD)

    run = swarden("bisect", "lost.oplog", "--git", *options)

    assert run.returncode == 2
    assert what in run.stderr
