"""The exit codes of a replay whose engine never finishes, or fails only in some runs."""

import itertools
import json

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.harness.core.mutant import Hunk, Mutant
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Flush, Submit
from swarden.harness.core.registry import OWN
from tests.harness.some_commands import swarden

ENDLESS = Mutant(
    "endless",
    "made up: the engine always has work",
    (Hunk("swarden.engine_under_test.engine:Engine.has_work", "return self.scheduler.has_work", "return True"),),
    ("stuck",),
)


RUNS = itertools.count(1)
FLAKY = Mutant(
    "flaky",
    "made up: the behaviour of the engine depends on state that is not in the op-log",
    (
        Hunk(
            "swarden.engine_under_test.engine:Engine.flush",
            "self.cache.flush()",
            f"assert next(__import__('sys').modules[{__name__!r}].RUNS) != 2",
        ),
    ),
    ("AssertionError",),
)


def replay_of(path, *ops, options=(), mutant=ENDLESS):
    """The replay of a log of these ops, with the bug planted."""
    OpLog(Header(engine=OWN, machine="engine", configs=[EngineConfig().to_mapping()]), ops).save(path)
    with mutant.planted():
        return swarden("replay", path, *options, cwd=path.parent)


def test_replay_with_a_stuck_drain_exits_with_three(tmp_path):
    path = tmp_path / "endless.oplog"

    result = replay_of(path, Submit(), Drain())

    assert result.returncode == 3
    assert result.stdout.startswith(f"FAILED {path}\nfound: stuck/drain\n")
    assert "engine error: DrainStuck: engine 0: work left after " in result.stdout


def test_replay_that_fails_in_one_of_three_runs_is_flaky_and_exits_with_four(tmp_path):
    path = tmp_path / "flaky.oplog"

    result = replay_of(path, Submit(), Flush(), mutant=FLAKY)

    assert result.returncode == 4, result.stderr
    assert result.stdout.startswith(f"FLAKY {path}: failed 1 of 3 runs\n")
    assert "engine error: AssertionError" in result.stdout


def test_json_of_a_replay_has_the_number_of_runs_and_failures(tmp_path):
    path = tmp_path / "endless.oplog"

    result = replay_of(path, Submit(), Drain(), options=("--repeat", 2, "--json"))

    [replayed] = json.loads(result.stdout)["replays"]
    assert (replayed["verdict"], replayed["runs"], replayed["failures"]) == ("FAILED", 2, 2)
    assert (replayed["engine"], replayed["mutant"], replayed["fingerprints"]) == ("swarden", None, ["stuck/drain"])


@pytest.mark.parametrize(
    ("expected", "ops", "code"),
    [("stuck/drain", [Submit()], 0), ("stuck/drain", [Submit(), Drain()], 1), ("error/x", [Submit(), Drain()], 125)],
    ids=["good", "bad", "otherwise"],
)
def test_replay_for_git_bisect_tells_good_commits_from_bad_ones(tmp_path, expected, ops, code):
    path, configs = tmp_path / "endless.oplog", [EngineConfig().to_mapping()]
    OpLog(Header(engine=OWN, machine="engine", configs=configs, expected=expected), ops).save(path)

    with ENDLESS.planted():
        result = swarden("replay", path, "--git-bisect", cwd=tmp_path)

    assert result.returncode == code, result.stdout + result.stderr


def test_replay_for_git_bisect_skips_a_commit_that_cannot_run_the_log(tmp_path):
    assert swarden("replay", "missing.oplog", "--git-bisect", cwd=tmp_path).returncode == 125
