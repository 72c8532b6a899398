"""How commands end where an engine never finishes, which no mutant of the catalogue does."""

import pytest
import typer
from typer.testing import CliRunner

from engine_under_test.config import EngineConfig
from harness.commands.replay import replay
from harness.mutants.mutant import Hunk, Mutant
from harness.oplog import Header, OpLog
from harness.ops import Drain, Submit

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


@pytest.fixture
def run():
    """Runs a command in this process, where the bug is planted."""

    def invoke(command, *arguments):
        app = typer.Typer()
        app.command()(command)
        with ENDLESS.planted():
            return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return invoke


def test_a_replay_that_never_ends_its_drain_exits_with_three(run, tmp_path):
    path = tmp_path / "endless.oplog"
    OpLog(Header(machine="engine", engines=[EngineConfig().to_mapping()]), [Submit(), Drain()]).save(path)

    result = run(replay, path)

    assert result.exit_code == 3
    assert result.stdout.startswith(f"FAILED {path}\nengine error: DrainStuck: engine 0: work left after ")
