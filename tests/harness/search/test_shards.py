"""Jobs of a night that drive real worker processes."""

from harness.core.mutant_file import VARIABLE
from harness.core.oplog import Header, OpLog
from harness.core.registry import OWN
from harness.core.replay import Verdict
from harness.search.campaign import Plan
from harness.search.profiles import PROFILES
from harness.search.shards import TWIN_EVERY, close_lanes, find_canary, plan_of_shard, replay_with_story
from harness.search.worker_process import Limits, Replays

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


def test_worker_has_the_limits_of_its_job(monkeypatch):
    """A node outlives a night, and the next one can have other limits."""
    started = []

    class Group:
        def __init__(self, *_, hang_seconds, memory_bytes):
            started.append(Limits(hang_seconds, memory_bytes))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def replay(self, *_, **__):
            return Replays(Verdict.FIXED, (), 0, 3)

    monkeypatch.setattr("harness.search.shards.WorkerGroup", Group)
    log = OpLog(Header(engine=OWN, configs=[{}]), [])
    try:
        for limits in (Limits(60.0), Limits(5.0), Limits(60.0, 1 << 30), Limits(60.0)):
            replay_with_story(log, limits)
    finally:
        close_lanes()

    assert started == [Limits(60.0), Limits(5.0), Limits(60.0, 1 << 30)]


def test_one_of_so_many_shards_has_twins():
    campaign = Plan(OWN, PROFILES["default"], 7, 60.0)

    twins = [plan_of_shard(campaign, ordinal, []).twin for ordinal in range(2 * TWIN_EVERY)]

    assert twins.count("all") == 2
    assert twins.count(None) == len(twins) - 2
