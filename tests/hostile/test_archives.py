"""A hostile archive is used, or refused with one line; nothing outside it is changed.

Each case is a command in a process of its own.  The bounds are those of `bounded`, above the same command on the valid
archive, and a minute of wall clock, because a blocked read uses no CPU.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarden.harness.core.exit_codes import ExitCode
from tests.harness.nightly.some_nights import LEAK, LOG
from tests.hostile.archives import Hostile, Valid, hostile, valid_archive, write_archive
from tests.hostile.bounded import MAX_BYTES, MAX_CPU_SECONDS, cases
from tests.hostile.cases import REPLAYS, Case, Outcome

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}  # a process with threads cannot be forked
UNCHANGED = Hostile({}, frozenset())
NO_ERROR = {*ExitCode} - {ExitCode.FAULT}
UNTIL = ("--reason", "known", "--until", "2099-12-31", "--archive", "archive")
COMMANDS = {
    "list": ["archive", "list", "--archive", "archive"],
    "list-json": ["archive", "list", "--json", "--archive", "archive"],
    "show": ["archive", "show", LEAK, "--archive", "archive"],
    "show-json": ["archive", "show", LEAK, "--json", "--archive", "archive"],
    "verify": ["archive", "verify", "--archive", "archive"],
    "quarantine": ["archive", "quarantine", LEAK, *UNTIL],
    "report": ["make_page"],
    "nightly": ["make_night"],
    "resume": ["make_night"],
}
IMPORT = ["archive", "import", "an.oplog", "--archive", "archive"]


class Server:
    """Runs cases, each in the same folder; `baselines` has the outcomes of the commands on the valid archive."""

    def __init__(self, folder: Path, valid: Valid, process: "Popen[bytes]") -> None:
        self.folder, self.valid = folder, valid
        self._process = process
        self.baselines: dict[str, Outcome] = {}

    def run(self, change: Hostile, command: list[str]) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        write_archive(self.folder / "archive", self.valid.files, change, self.folder / "elsewhere")
        (self.folder / "output").write_bytes(b"")
        case = Case(folder=str(self.folder), command=command)
        self._process.stdin.write(msgspec.json.encode(case) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Outcome)

    def check(self, name: str, change: Hostile, command: list[str]) -> None:
        """Run a case, and check its bounds."""
        if name not in self.baselines:
            healthy = self.run(UNCHANGED, command)
            assert healthy.code in NO_ERROR, healthy.output
            self.baselines[name] = healthy
        outcome = self.run(change, command)
        assert outcome.signal == 0, outcome
        assert outcome.code in NO_ERROR, outcome.output
        assert outcome.cpu_seconds <= self.baselines[name].cpu_seconds + MAX_CPU_SECONDS
        assert outcome.peak_bytes <= self.baselines[name].peak_bytes + MAX_BYTES


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "temporary").mkdir()
    LOG.as_regression(LEAK).save(folder / "an.oplog")
    valid = valid_archive(folder / "archive")
    command = [sys.executable, "-m", "tests.hostile.cases"]
    with Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, env=ENVIRONMENT) as process:
        yield Server(folder, valid, process)


@pytest.mark.parametrize("name", COMMANDS)
@cases(6)
@given(data=st.data())
def test_hostile_archive_is_used_or_refused(server, name, data):
    command = COMMANDS[name]
    if command == ["make_night"]:
        command = [*command, data.draw(st.sampled_from(sorted(REPLAYS)))]
        command += [server.valid.dead_night] * (name == "resume")

    server.check(name, data.draw(hostile(server.valid.files)), command)


@cases(1)
@given(data=st.data())
def test_hostile_archive_is_used_or_refused_by_an_import(server, data):
    """The imported op-log runs in a worker process, as outside of tests."""
    server.check("import", data.draw(hostile(server.valid.files)), IMPORT)


def test_case_that_writes_outside_is_ended(server):
    """The check of the check."""
    outcome = server.run(UNCHANGED, ["report", "archive", "--out", str(server.folder / "page.html")])

    assert "is outside" in outcome.output
    assert not (server.folder / "page.html").exists()
