"""Campaigns: equal seeds give equal runs, and failures become findings."""

from dataclasses import replace
from itertools import count

import pytest

from swarden.harness.core import system
from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.limits import MAX_STEPS, MAX_TOKENS
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import failure_like, run_log
from swarden.harness.core.running_log import RunningLog, last_run
from swarden.harness.engines.own.target import OwnTarget
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.result import Result
from swarden.harness.search.run import RunIndex, batch_seed
from swarden.harness.search.shrink.shrink import measure
from swarden.harness.search.traffic import machine
from swarden.harness.search.workers import WorkerGroup
from tests.engines.some_runs import digests_of_runs, is_same_under_hash_seeds
from tests.harness.driving import TINY

PLAN = Plan(engine=OWN, profile=TINY, seed=11, machine="engine")


def work(**changes):
    """A worker's result after a few small runs."""
    return Worker(replace(PLAN, **{"max_runs": 6} | changes), lambda _: None).work()


def test_campaigns_with_equal_seeds_make_equal_runs():
    """Two campaigns from one seed run the same ops and see the same probes."""
    first, second = work(), work()

    assert (first.tallies.ops, first.tallies.steps) == (second.tallies.ops, second.tallies.steps)
    assert first.tallies.probes == second.tallies.probes
    assert first.tallies.rechecked == 2
    assert first.diverged == []


@pytest.mark.parametrize(
    ("steps", "run_tokens", "prompt_tokens"),
    [(8, MAX_TOKENS, MAX_TOKENS), (MAX_STEPS, 10, MAX_TOKENS), (MAX_STEPS, MAX_TOKENS, 20)],
    ids=["steps", "tokens", "memory"],
)
def test_run_ends_at_a_limit_of_its_work_and_the_campaign_goes_on(monkeypatch, steps, run_tokens, prompt_tokens):
    """The run is counted, is the same in each campaign, and is not run twice."""
    monkeypatch.setattr(machine, "MAX_RUN_TOKENS", run_tokens)
    monkeypatch.setattr(system, "MAX_TOKENS", prompt_tokens)
    monkeypatch.setattr(machine, "MAX_RUN_STEPS", steps)
    profile = replace(TINY, recheck_every=1)

    first, second = (work(profile=profile) for _ in range(2))

    assert (first.tallies.runs, first.findings, first.diverged) == (6, {}, [])
    assert 0 < first.tallies.limited_runs == first.tallies.runs - first.tallies.rechecked
    assert first.tallies == second.tallies


@pytest.mark.parametrize("model", ["tiny-gemma3", "tiny-gpt-oss"])
def test_a_campaign_with_a_model_finds_nothing_in_a_healthy_engine(model):
    """The drawn ops are those of the stand-in with the same seed; other laws check them; a recheck gives the same run.

    The aborts at the end of a run are not drawn: they abort what is left, which depends on the model's tokens.
    """
    plan = {"max_runs": 6}
    result, with_the_stand_in = work(model=model, **plan), work(**plan)

    assert (result.findings, result.diverged) == ({}, [])
    assert result.tallies.rechecked == 2
    for one in (result, with_the_stand_in):
        del one.tallies.ops["abort"]
    assert result.tallies.ops == with_the_stand_in.tallies.ops
    assert result.tallies.evaluated["logits_match_uncached_model"] > 50
    assert result.tallies.evaluated["slots_hold_their_prefix"] == 0
    assert result.tallies.not_applicable["slots_hold_their_prefix"] > 50


def test_first_finding_ends_a_campaign_that_stops_on_first():
    """With stop_on_first one finding is kept, with its log up to the op that failed."""
    result = work(mutant="B46", stop_on_first=True, max_runs=None)

    [finding] = result.findings.values()
    assert finding.fingerprint == "requests_are_in_one_queue/request/in_two_queues"
    assert finding.log.header.mutant == "B46"
    assert result.tallies.failed_runs == 1


def test_simplest_run_of_a_machine_is_made_once(monkeypatch):
    """Each search of Hypothesis begins with it; the two batches have 6 runs each without the second one."""
    runs = []
    monkeypatch.setattr(Worker, "on_end", lambda *ended: runs.append(ended[-1].ops))
    work(machine="pd", max_runs=12)

    assert len(runs) == 12
    assert runs.count(runs[0]) == 1


@pytest.mark.parametrize(
    ("workers", "runs"),
    [pytest.param(1, [8], id="one"), pytest.param(2, [6, 2], id="two"), pytest.param(3, [6, 2, 0], id="three")],
)
def test_runs_of_a_campaign_are_distributed_over_its_workers(workers, runs):
    """A batch has 6 runs; the worker with the second batch makes the remaining 2."""
    assert [
        work(machine="engine", max_runs=8, first_run=RunIndex(worker), workers=workers).tallies.runs
        for worker in range(workers)
    ] == runs


def test_finding_is_written_at_once(tmp_path):
    result = work(mutant="B46", stop_on_first=True, max_runs=None, out=tmp_path)

    [finding] = result.findings.values()
    assert finding.path == tmp_path / f"{slug(finding.fingerprint)}-seed11.unshrunk.oplog"
    assert load_log(finding.path).ops == finding.log.ops


def test_seed_of_a_batch_depends_only_on_the_campaign_and_its_number():
    """The values are fixed, because a change would invalidate recorded seeds."""
    assert [batch_seed(7, batch) for batch in (0, 1)] == [1718373188, 4149949613]
    assert batch_seed(7, 0) != batch_seed(8, 0)


@pytest.mark.parametrize("is_found_later", [False, True])
def test_equal_findings_of_two_results_become_one_with_the_smaller_log(is_found_later):
    """The time of the finding is that of the earlier one."""
    one, other = work(mutant="B46", stop_on_first=True), work(mutant="B46", stop_on_first=True)
    [(fingerprint, found)] = one.findings.items()
    runs = one.tallies.runs + other.tallies.runs
    smaller, seconds = OpLog(found.log.header, found.log.ops[1:]), found.found_cpu_seconds
    later = seconds + 1 if is_found_later else 0.0
    other.findings[fingerprint] = found.changed(log=smaller, found_cpu_seconds=later)

    one.add(other)

    assert one.tallies.runs == runs
    assert one.findings[fingerprint].log == smaller
    assert one.findings[fingerprint].found_cpu_seconds == min(seconds, later)


@pytest.fixture(scope="module")
def with_a_frequent_bug():
    """The result of a campaign with many failures."""
    return work(mutant="B46", max_runs=36)


def test_known_failure_is_counted_and_not_rechecked(with_a_frequent_bug):
    """The first two runs of each fingerprint are run twice; passing runs are sampled as usual."""
    result = with_a_frequent_bug

    assert result.tallies.failed_runs > 2 * len(result.findings)
    assert result.tallies.rechecked <= 2 * len(result.findings) + result.tallies.runs // TINY.recheck_every


def test_finding_has_the_smallest_of_its_failing_logs(with_a_frequent_bug):
    """The second failure is shrunk to steer later runs; to shrink the finding begins where that ended."""
    [(fingerprint, long)] = work(mutant="B46", stop_on_first=True).findings.items()

    short = with_a_frequent_bug.findings[fingerprint]

    assert measure(short.log) < measure(long.log)
    assert len(short.log.ops) == 2
    assert failure_like(short.log, fingerprint) is not None


def test_interrupted_run_is_discarded():
    """Runs that ended before the interrupt are kept; the current run is neither drained nor checked."""
    results: list[Result] = []
    plan = replace(PLAN, max_runs=6)
    num_checks = count()
    worker = Worker(plan, results.append, lambda: len(results) == 2 and next(num_checks) > 5)

    result = worker.work()

    assert (result.tallies.runs, result.findings, result.diverged) == (2, {}, [])
    assert next(num_checks) > 5


def test_failed_run_is_kept_after_an_interrupt():
    """The interrupt comes after the failing op, before the end of the run."""
    seen: list[str] = []

    class Watching(Worker):
        def on_op(self, driver):
            super().on_op(driver)
            if driver.failure is not None:
                seen.append(driver.failure.fingerprint)

    plan = replace(PLAN, seconds=60, mutant="B46")
    result = Watching(plan, lambda _: None, lambda: bool(seen)).work()

    assert list(result.findings) == seen[:1]


def test_engine_interrupted_within_an_op_is_not_checked():
    """A KeyboardInterrupt ends the work; the interrupted engine is not drained."""
    results: list[Result] = []

    def interrupt(_next_run):
        if results:
            raise KeyboardInterrupt

    worker = Worker(replace(PLAN, seconds=60), results.append, heartbeat=interrupt)

    with pytest.raises(KeyboardInterrupt):
        worker.work()

    assert len(results) == 1


def test_skipped_runs_are_those_before_the_first_of_the_plan():
    """A replacement worker makes the same runs that the dead worker would have made next."""
    logs: dict[RunIndex, list[Result]] = {first: [] for first in (RunIndex(0), RunIndex(0, 4))}
    for first, results in logs.items():
        plan = replace(PLAN, max_runs=6, first_run=first)
        Worker(plan, results.append).work()

    whole, rest = ([(result.tallies.ops, result.tallies.steps) for result in results] for results in logs.values())
    assert whole[4:] == rest


def test_op_is_in_the_running_log_before_it_is_applied(tmp_path):
    """The last op of the file is the op that the engine executes."""
    path = tmp_path / "running.oplog"
    seen = []

    def heartbeat(_next_run):
        if (log := last_run(path)) is not None and log.ops:
            seen.append(log)

    worker = Worker(replace(PLAN, max_runs=1), lambda _: None, heartbeat=heartbeat, running=RunningLog(path))
    result = worker.work()

    assert len(seen[-1].ops) == result.tallies.ops.total()
    assert run_log(seen[-1]).counts.engine_steps == result.tallies.steps
    assert last_run(path) is None


def test_link_in_the_place_of_the_running_log_is_not_followed(tmp_path):
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "running.oplog").symlink_to("outside")
    RunningLog(tmp_path / "running.oplog").begin(Header(engine=OWN, configs=[{}]))

    assert (tmp_path / "outside").read_text() == "kept"


@pytest.mark.parametrize("machine", ["engine", "pd"])
def test_fixed_settings_are_those_of_all_runs(machine):
    """The settings are fixed in the runs of each machine, and on both sides of a pair."""
    settings, found = {"page_size": 4, "sliding_window": 8}, []

    class Recorder(Worker):
        def drive(self, header):
            found.extend(header.configs)
            return super().drive(header)

    result = Recorder(replace(PLAN, max_runs=3, machine=machine, settings=settings), lambda _: None).work()

    assert (result.tallies.runs, result.findings) == (3, {})
    assert all(settings.items() <= config.items() for config in found)


def test_settings_that_no_configuration_can_have_end_the_campaign(tmp_path):
    plan = replace(PLAN, seconds=60, settings={"page_size": 3})
    refused = pytest.raises(UsageError, match=r"--set: the engine refuses each .*: page_size: 3 is not one of")

    with WorkerGroup(2, tmp_path, hang_seconds=60) as group, refused:
        group.run(plan)


@pytest.mark.parametrize("refused", ["decode", "systems"])
def test_draw_that_conflicts_with_a_fixed_setting_is_drawn_again(monkeypatch, refused):
    """The configuration or the engine refuses the draw."""
    original = getattr(OwnTarget, refused)

    def picky(self, *arguments):
        made = original(self, *arguments)
        config = made if refused == "decode" else arguments[1][0]
        if config.page_size == 2 and config.overlap:
            raise InvalidConfig("overlap is true with page_size 2")
        return made

    monkeypatch.setattr(OwnTarget, refused, picky)

    assert work(settings={"page_size": 2}).tallies.runs == 6


def refuse(*_):
    raise InvalidConfig("overlap is true")


def test_campaign_ends_if_the_engine_refuses_all_draws(monkeypatch):
    monkeypatch.setattr(OwnTarget, "systems", refuse)

    assert work(settings={"page_size": 2}).is_refused


def test_worker_whose_draws_are_refused_is_not_silent_and_ends_when_it_is_stopped(monkeypatch, tmp_path):
    """No log of a run is left: a worker that is slow to draw the next configuration does not hang in that run."""
    plan, left = replace(PLAN, seconds=60, settings={"page_size": 2}), list[OpLog | None]()
    path = tmp_path / "running.oplog"

    def beat(_):
        left.append(last_run(path))

    monkeypatch.setattr(OwnTarget, "systems", refuse)
    worker = Worker(plan, lambda _: None, lambda: len(left) > 8, heartbeat=beat, running=RunningLog(path))

    outcome = Outcome(plan, "", worker.work())
    assert left[1::2] == [None] * 4
    assert outcome.summary()["refused"] == {"draws": 5, "most_frequent": "overlap is true"}
    assert "5 drawn configurations refused, most often: overlap is true" in outcome.lines()


def test_finding_that_cannot_be_written_is_kept_in_memory(tmp_path):
    (tmp_path / "file").touch()

    result = work(mutant="B46", stop_on_first=True, max_runs=None, out=tmp_path / "file" / "findings")

    [finding] = result.findings.values()
    assert finding.path is None
    assert finding.log.ops


def test_hash_seed_of_the_process_changes_no_run():
    assert is_same_under_hash_seeds(digests_of_runs, OWN, 16, 16)
