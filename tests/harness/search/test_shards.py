"""Jobs of a night that drive real worker processes."""

from pathlib import Path

import pytest

from harness.core.mutant_file import VARIABLE
from harness.core.registry import OWN
from harness.core.replay import Verdict
from harness.search import shards
from harness.search.campaign import Plan
from harness.search.profiles import PROFILES
from harness.search.shards import TWIN_EVERY, close_lanes, find_canary, plan_of_shard, replay_logs
from harness.search.worker_process import Limits, Replays

FIXED, FAILED, CHANGED = (
    Replays(verdict, ("law",), 3, 3) for verdict in (Verdict.FIXED, Verdict.FAILED, Verdict.CHANGED)
)

MUTANTS = """
from harness.core.mutant import Hunk, Mutant

RESULT = "engine_under_test.engine:Engine.has_work"
stale = Mutant("stale", "made up", (Hunk(RESULT, "no such text", "pass"),), ("stuck",))
"""


def test_canary_is_the_first_mutant_that_fits_the_engine(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(MUTANTS)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own.py"))
    plan = Plan(OWN, PROFILES["default"], 7, 60.0)
    limits = Limits(60.0)
    try:
        found = find_canary(plan, ["stale", "B46"], limits)
        nothing = find_canary(plan, ["stale"], limits)
    finally:
        close_lanes()

    assert (found.mutant, found.law) == ("B46", "requests_are_in_one_queue")
    assert (nothing.mutant, nothing.law) == ("", "")


@pytest.mark.parametrize(
    ("names", "result"),
    [
        pytest.param("fixed failed unread", ("failed", FAILED), id="smallest-that-fails"),
        pytest.param("fixed unread changed", ("changed", CHANGED), id="changed"),
        pytest.param("fixed unread", ("unread", "no log"), id="cannot-be-run"),
        pytest.param("fixed fixed", ("fixed", FIXED), id="all-pass"),
    ],
)
def test_finding_is_fixed_if_all_its_logs_pass(monkeypatch, names, result):
    """Otherwise that of its logs counts which fails."""
    results = {"fixed": FIXED, "failed": FAILED, "changed": CHANGED, "unread": "no log"}
    monkeypatch.setattr(shards, "replay_log", lambda content, *_: results[content.decode()])
    logs = [(name.encode(), Path(name)) for name in names.split()]

    assert replay_logs(logs, OWN, None, Limits(60.0)) == (Path(result[0]), result[1])


def test_one_of_so_many_shards_has_twins():
    campaign = Plan(OWN, PROFILES["default"], 7, 60.0)

    twins = [plan_of_shard(campaign, ordinal, []).twin for ordinal in range(2 * TWIN_EVERY)]

    assert twins.count("all") == 2
    assert twins.count(None) == len(twins) - 2
