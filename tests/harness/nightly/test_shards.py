"""Jobs of a night that drive real worker processes."""

from pathlib import Path

import pytest

from swarden.harness.core.mutant_file import VARIABLE
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Step, Submit
from swarden.harness.core.process import ProcessLimits
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import Replays, Verdict, not_run
from swarden.harness.nightly import shards
from swarden.harness.nightly.shards import close_lanes, find_canary, replay_log, replay_logs, settle
from swarden.harness.search.campaign import Plan
from swarden.harness.search.result import Finding
from swarden.harness.search.traffic.profiles import PROFILES

UNREAD = not_run("no log")
FIXED, FAILED, CHANGED = (
    Replays(verdict, ("law",), 3, 3) for verdict in (Verdict.FIXED, Verdict.FAILED, Verdict.CHANGED)
)

MUTANTS = """
from swarden.harness.core.mutant import Hunk, Mutant

RESULT = "swarden.harness.engines.demo.engine:Engine.has_work"
HEALTHY = "return bool(self.waiting"
OS = "__import__('os')"
DIES = f"{OS}.kill({OS}.getpid(), 9); {HEALTHY}"
IF_FIRST = f"{OS}.path.exists('{ONCE}') or open('{ONCE}', 'w') and {OS}.kill({OS}.getpid(), 9)"
DIES_ONCE = f"{IF_FIRST}; {HEALTHY}"
stale = Mutant("stale", "made up", (Hunk(RESULT, "no such text", "pass"),), ("stuck",))
dies = Mutant("dies", "made up", (Hunk(RESULT, HEALTHY, DIES),), ("stuck",))
dies_once = Mutant("dies_once", "made up", (Hunk(RESULT, HEALTHY, DIES_ONCE),), ("stuck",))
"""
DEMO = "demo"  # whose workers need no torch
LOG = OpLog(Header(engine=DEMO, configs=[{}], expected="law"), [Submit(), Step()])


@pytest.fixture
def own_mutants(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(f"ONCE = {str(tmp_path / 'once')!r}\n{MUTANTS}")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own.py"))
    close_lanes()  # a worker of an earlier test does not know the file
    yield
    close_lanes()


@pytest.mark.usefixtures("own_mutants")
def test_canary_is_the_first_mutant_that_fits_the_engine():
    plan = Plan(engine=OWN, profile=PROFILES["default"], seed=7, seconds=60.0)
    limits = ProcessLimits(60.0)

    found = find_canary(plan, ["stale", "B46"], limits)
    nothing = find_canary(plan, ["stale"], limits)

    assert (found.mutant, found.law) == ("B46", "requests_are_in_one_queue")
    assert (nothing.mutant, nothing.law) == ("", "")


@pytest.mark.parametrize(
    ("names", "result"),
    [
        pytest.param("fixed failed unread", ("failed", FAILED), id="smallest-that-fails"),
        pytest.param("fixed unread changed", ("changed", CHANGED), id="changed"),
        pytest.param("fixed unread", ("unread", UNREAD), id="cannot-be-run"),
        pytest.param("fixed fixed", ("fixed", FIXED), id="all-pass"),
    ],
)
def test_finding_is_fixed_if_all_its_logs_pass(monkeypatch, names, result):
    """If some of its logs fail, the result is that of a log that fails."""
    results = {"fixed": FIXED, "failed": FAILED, "changed": CHANGED, "unread": UNREAD}
    monkeypatch.setattr(shards, "replay_log", lambda content, *_: results[content.decode()])
    logs = [(name.encode(), Path(name)) for name in names.split()]

    assert replay_logs(logs, OWN, None, ProcessLimits(60.0)) == (Path(result[0]), result[1])


@pytest.mark.usefixtures("own_mutants")
@pytest.mark.parametrize(
    ("mutant", "verdict", "fingerprints"),
    [
        pytest.param("dies_once", Verdict.FIXED, (), id="killed-from-outside"),
        pytest.param("dies", Verdict.CHANGED, ("crash/SIGKILL",), id="by-its-log"),
    ],
)
def test_log_whose_replay_dies_is_run_again_in_a_fresh_process(mutant, verdict, fingerprints):
    replays = replay_log(LOG.to_bytes(), Path("a.oplog"), DEMO, mutant, ProcessLimits(60.0))

    assert (replays.verdict, replays.fingerprints) == (verdict, fingerprints)


@pytest.mark.usefixtures("own_mutants")
def test_death_in_a_replay_that_repeats_is_confirmed():
    log = LOG.with_header(mutant="dies", expected="crash/SIGKILL")
    finding = Finding("crash/SIGKILL", log, 0.0, died="a replay ended with crash/SIGKILL")

    [confirmed] = settle(finding, DEMO, ProcessLimits(60.0))

    assert confirmed.is_confirmed
