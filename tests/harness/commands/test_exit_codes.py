"""How commands end where an engine never finishes, or fails now and then, which no mutant of the catalogue does."""

import itertools
import json

import pytest
import typer
from typer.testing import CliRunner

from engine_under_test.config import EngineConfig
from harness.commands.replay import replay
from harness.core.mutant import Hunk, Mutant
from harness.core.oplog import Header, OpLog
from harness.core.ops import Drain, Flush, Submit
from harness.core.registry import OWN

ENDLESS = Mutant(
    "endless",
    "made up: there is always something left to do",
    (
        Hunk(
            "engine_under_test.engine:Engine.has_work",
            "return self.scheduler.has_work",
            "return True",
        ),
    ),
    ("stuck",),
)


RUNS = itertools.count(1)
FLAKY = Mutant(
    "flaky",
    "made up: what the engine does depends on something that no op-log has",
    (
        Hunk(
            "engine_under_test.engine:Engine.flush",
            "self.cache.flush()",
            f"assert next(__import__('sys').modules[{__name__!r}].RUNS) != 2",
        ),
    ),
    ("AssertionError",),
)


@pytest.fixture
def run():
    """Runs a command in this process, where the bug is planted."""

    def invoke(command, *arguments, mutant=ENDLESS):
        app = typer.Typer()
        app.command()(command)
        with mutant.planted():
            return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return invoke


def test_a_replay_that_never_ends_its_drain_exits_with_three(run, tmp_path):
    path = tmp_path / "endless.oplog"
    OpLog(Header(engine=OWN, machine="engine", configs=[EngineConfig().to_mapping()]), [Submit(), Drain()]).save(path)

    result = run(replay, path)

    assert result.exit_code == 3
    assert result.stdout.startswith(f"FAILED {path}\nfound: stuck/drain\n")
    assert "engine error: DrainStuck: engine 0: work left after " in result.stdout


def test_a_replay_that_fails_now_and_then_exits_with_four_and_counts(run, tmp_path):
    """The second of three runs fails, and is told."""
    path = tmp_path / "flaky.oplog"
    OpLog(Header(engine=OWN, machine="engine", configs=[EngineConfig().to_mapping()]), [Submit(), Flush()]).save(path)

    result = run(replay, path, mutant=FLAKY)

    assert result.exit_code == 4, result.output
    assert result.stdout.startswith(f"FLAKY {path}: failed 1 of 3 runs\n")
    assert "engine error: AssertionError" in result.stdout


def test_a_replay_counts_its_runs_for_scripts(run, tmp_path):
    path = tmp_path / "endless.oplog"
    OpLog(Header(engine=OWN, machine="engine", configs=[EngineConfig().to_mapping()]), [Submit(), Drain()]).save(path)

    result = run(replay, path, "--repeat", 2, "--json")

    [told] = json.loads(result.stdout)["replays"]
    assert (told["verdict"], told["runs"], told["failures"]) == ("FAILED", 2, 2)
    assert (told["engine"], told["mutant"], told["fingerprints"]) == ("swarden", None, ["stuck/drain"])
