"""A night: its phases, its seeds, its nodes and its events."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from threading import Event as Flag

import msgspec
import pytest

from swarden.harness.commands.nightly import PHASES
from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import Replays, Verdict, not_run
from swarden.harness.nightly.archive import Archive, Night, Sighting, Status
from swarden.harness.nightly.events import KINDS, Event
from swarden.harness.nightly.night import begin, fresh_seed
from swarden.harness.nightly.pool import MAX_LOSSES, Job, JobPool
from swarden.harness.nightly.replaying import logs_of
from swarden.harness.nightly.shards import BATCHES, build_of
from swarden.harness.search.archive_files import read
from swarden.harness.search.mutes import Mute
from tests.harness.nightly.some_nights import (
    DOUBLE_FREE,
    FAILED,
    FIXED,
    LEAK,
    LOG,
    ORDER,
    Lost,
    leaking,
    night_of,
    settled,
    shard_result,
    statuses,
    table,
)

GATE = ORDER._replace(is_gate=True)
FLAKY = Replays(Verdict.FLAKY, (LEAK,), 2, 3)


def test_finding_is_new_then_known_then_fixed_then_reopened(tmp_path):
    """The summary of the finding counts the three nights in which it failed."""
    nights = [
        night_of(tmp_path, table(leaking)),
        night_of(tmp_path, table(leaking, replay_log=FAILED)),
        night_of(tmp_path, table(replay_log=FIXED)),
        night_of(tmp_path, table(leaking, replay_log=FAILED)),
    ]

    assert [statuses(night) for night in nights] == [{LEAK: name} for name in ("new", "recurring", "fixed", "reopened")]
    assert [night.exit_code for night in nights] == [1, 1, 0, 1]
    assert Archive(tmp_path).finding(OWN, LEAK).summary().seen == 3


def test_no_time_is_spent_on_known_findings(tmp_path):
    """Known findings are not shrunk again, runs are steered away from them, and runs that fail by them are counted."""
    night_of(tmp_path, table(leaking))
    second = table(leaking, replay_log=FAILED)

    night = night_of(tmp_path, second)

    assert second.count("settle") == 0
    assert [log.header.expected for name, plan in second.calls if name == "run_shard" for log in plan.known] == 3 * [
        LEAK
    ]
    assert night.findings[0].sighting.times == 3


@pytest.mark.parametrize(
    ("before", "status"), [pytest.param(LEAK, "recurring", id="open"), pytest.param("", "reopened", id="fixed")]
)
def test_finding_whose_log_passes_is_settled_again_if_traffic_has_its_failure(tmp_path, before, status):
    night_of(tmp_path, table(leaking))
    night_of(tmp_path, table(replay_log=FAILED if before else FIXED))
    again = table(leaking, replay_log=FIXED)

    night = night_of(tmp_path, again)

    assert (again.count("settle"), statuses(night)) == (1, {LEAK: status})


def test_smallest_logs_of_a_finding_and_the_last_one_are_replayed(tmp_path):
    """The smallest log is replayed first."""
    finding = Archive(tmp_path).finding(OWN, LEAK)
    finding.add(Sighting(night="2026-11-24-01-aaaa", engine=OWN, status=Status.NEW, log="e.oplog"))
    for name, size in zip("abcde", (4, 2, 3, 1, 9), strict=True):
        (finding.folder / f"{name}.oplog").write_bytes(bytes(size))

    assert [path.name for path in logs_of(Archive(tmp_path).finding(OWN, LEAK))] == ["d.oplog", "b.oplog", "e.oplog"]


def test_log_that_fails_becomes_that_of_its_finding(tmp_path):
    """A finding that is fixed keeps its log."""
    first = night_of(tmp_path, table(leaking)).findings[0].sighting.log
    OpLog(LOG.header, []).save(Archive(tmp_path).finding(OWN, LEAK).folder / "0.oplog")

    fixed = night_of(tmp_path, table(replay_log=FIXED)).findings[0].sighting.log
    failed = night_of(tmp_path, table(replay_log=FAILED)).findings[0].sighting.log

    assert (fixed, failed) == (first, "0.oplog")


def test_changed_failure_is_a_finding_of_its_own(tmp_path):
    night_of(tmp_path, table(leaking))

    night = night_of(tmp_path, table(replay_log=Replays(Verdict.CHANGED, (DOUBLE_FREE,), 3, 3)))

    assert statuses(night) == {LEAK: "changed", DOUBLE_FREE: "new"}
    assert night.exit_code == ExitCode.VIOLATED


def test_replay_that_kills_its_process_and_does_not_repeat_is_no_finding(tmp_path):
    """The worker may have been killed from outside."""
    night_of(tmp_path, table(leaking))
    killed = Replays(Verdict.CHANGED, ("crash/SIGKILL",), 1, 1)

    night = night_of(tmp_path, table(replay_log=killed, settle=lambda finding, *_: settled(finding, failures=0)))

    assert statuses(night) == {LEAK: "changed"}
    assert night.engines[0].owed == [f"crash/SIGKILL did not repeat: a replay of {LEAK} ended with crash/SIGKILL"]


def test_finding_that_fails_in_two_of_three_fresh_processes_is_flaky(tmp_path):
    night = night_of(tmp_path, table(leaking, settle=lambda finding, *_: settled(finding, failures=2)))

    assert (statuses(night), night.exit_code) == ({LEAK: "flaky"}, ExitCode.NONDETERMINISTIC)


def test_crash_that_does_not_repeat_is_red_and_no_finding(tmp_path):
    """The log of the crash is kept in the folder of the night."""
    crash = "crash/SIGKILL/step"
    answers = table(
        lambda *_: shard_result(crash, died="worker 0 was killed by SIGKILL in op 2, step"),
        settle=lambda finding, *_: settled(finding, failures=0),
    )

    night = night_of(tmp_path, answers)

    assert (night.findings, night.exit_code) == ([], ExitCode.RED)
    assert night.engines[0].owed == ["crash/SIGKILL/step did not repeat: worker 0 was killed by SIGKILL in op 2, step"]
    assert len(list(tmp_path.glob(f"nights/{night.name}/unconfirmed/*.oplog"))) == 1


def test_crash_that_is_met_while_a_finding_is_settled_is_a_finding_of_its_own(tmp_path):
    answers, crash = table(leaking), "crash/SIGKILL/with a fix"
    answers.answers["settle"] = lambda finding, *_: [settled(finding), settled(finding.changed(fingerprint=crash))]

    night = night_of(tmp_path, answers)

    assert statuses(night) == {LEAK: "new", crash: "new"}


@pytest.mark.parametrize(
    ("until", "code"),
    [
        pytest.param(date(9999, 12, 31), ExitCode.CLEAN, id="before-its-date"),
        pytest.param(date(2020, 1, 1), ExitCode.VIOLATED, id="after-its-date"),
    ],
)
def test_finding_in_quarantine_does_not_make_a_night_red_until_its_date(tmp_path, until, code):
    night_of(tmp_path, table(leaking))
    Archive(tmp_path).finding(OWN, LEAK).put_in_quarantine(Mute(reason="known upstream", until=until))

    night = night_of(tmp_path, table(leaking, replay_log=FAILED))

    assert (statuses(night), night.exit_code) == ({LEAK: "recurring"}, code)


@pytest.mark.parametrize(
    ("replay_log", "before", "code"),
    [
        pytest.param(FAILED, FAILED, ExitCode.CLEAN, id="recurring"),
        pytest.param(FLAKY, FAILED, ExitCode.CLEAN, id="flaky-and-open-before"),
        pytest.param(FAILED, FIXED, ExitCode.VIOLATED, id="reopened"),
    ],
)
def test_gate_is_red_only_for_findings_that_were_not_open(tmp_path, replay_log, before, code):
    for answers in (table(leaking), table(replay_log=before)):
        night_of(tmp_path, answers)

    assert night_of(tmp_path, table(replay_log=replay_log), GATE).exit_code == code


@pytest.mark.parametrize("name", ["finding.json", "*.oplog", "seen/*.json"])
def test_file_of_the_archive_that_cannot_be_read_is_an_error_and_stays(tmp_path, name):
    """The other findings are replayed."""
    night_of(tmp_path, table(lambda *_: shard_result(LEAK, DOUBLE_FREE)))
    [path] = Archive(tmp_path).finding(OWN, LEAK).folder.glob(name)
    path.chmod(0o644)
    path.write_bytes(b"\xff")

    night = night_of(tmp_path, table(replay_log=not_run("damaged") if "oplog" in name else FIXED))

    assert night.exit_code == ExitCode.MISUSE
    assert path.read_bytes() == b"\xff"
    assert DOUBLE_FREE in statuses(night)


def test_finding_whose_summary_cannot_be_read_is_settled_beside_the_archive(tmp_path):
    """The log is in the folder of the night, and the other failure is published."""
    night_of(tmp_path, table(leaking))
    summary = Archive(tmp_path).finding(OWN, LEAK).folder / "finding.json"
    summary.write_bytes(b"{")

    night = night_of(tmp_path, table(lambda *_: shard_result(LEAK, DOUBLE_FREE)))

    assert (statuses(night), night.exit_code) == ({DOUBLE_FREE: "new"}, ExitCode.MISUSE)
    assert [error.partition(": ")[0] for error in night.errors] == [str(summary)]
    [log] = (tmp_path / "nights" / night.name / "unpublished").glob("*.oplog")
    assert load_log(log).header.expected == LEAK


# --- seeds


def test_seed_of_a_night_is_none_of_an_earlier_one():
    """The seed is another one even if the name of the night gives an earlier seed."""
    first = fresh_seed("2026-11-25-01-aaaa", [])

    assert fresh_seed("2026-11-25-01-aaaa", [first]) != first
    assert fresh_seed("2026-11-26-01-aaaa", []) != first


def test_nights_of_one_archive_have_names_and_seeds_of_their_own(tmp_path):
    nights = [begin(Archive(tmp_path), ORDER) for _ in range(3)]

    assert len({night.name for night in nights}) == len({night.seed for night in nights}) == 3
    assert sorted(night.name for night in nights) == [night.name for night in nights]


def test_shard_ends_with_the_minutes_of_the_night(tmp_path):
    answers = table()

    night_of(tmp_path, answers, ORDER._replace(minutes=1, runs=1))

    [plan] = [plan for name, plan in answers.calls if name == "run_shard"]
    assert plan.seconds <= 60


def test_shards_are_successive_batches_of_one_campaign(tmp_path):
    """`swarden fuzz` with the seed of the night makes the same runs."""
    answers = table()

    night = night_of(tmp_path, answers)

    plans = [plan for name, plan in answers.calls if name == "run_shard"]
    assert {plan.seed for plan in plans} == {night.seed}
    assert [plan.first_run.batch for plan in plans] == [0, BATCHES, 2 * BATCHES]
    assert [plan.max_runs for plan in plans] == [32, 64, 96]


# --- nodes


def test_shard_of_a_lost_node_runs_again_and_counts_once(tmp_path):
    losses = iter([Lost(), Lost()])

    def run_shard(*_):
        for error in losses:
            raise error
        return shard_result(LEAK)

    events: list[Event] = []
    night = night_of(tmp_path, table(run_shard), events=events)

    assert (night.engines[0].tallies.runs, night.engines[0].tallies.failures[LEAK]) == (12, 3)
    assert sum(type(event).__name__ == "ShardLost" for event in events) == 2


def test_shard_whose_node_is_lost_again_and_again_ends_the_night(tmp_path):
    def run_shard(*_):
        raise Lost

    answers = table(run_shard)
    with pytest.raises(UsageError, match=f"its node was lost {MAX_LOSSES} times"):
        night_of(tmp_path, answers)

    assert answers.count("run_shard") == MAX_LOSSES


def test_pool_reports_while_no_job_ends():
    """The job waits for the report."""
    is_reported = Flag()
    with ThreadPoolExecutor(1) as node:
        job = Job("one", is_reported.wait, (60.0,))
        [(_, result)] = JobPool(node, 1).run([job], lambda *_: None, lambda _: is_reported.set())

    assert result


def test_no_job_runs_on_a_node_with_another_build():
    """The node checks, so that neither a replay nor a canary ends before the difference is seen."""
    ran: list[int] = []
    with ThreadPoolExecutor(1) as node:
        same = JobPool(node, 1, builds=[build_of(OWN)])
        other = JobPool(node, 1, builds=[build_of(OWN)._replace(source_hash="other")])
        results = [*same.run([Job("one", ran.append, (1,))], lambda *_: None)]
        with pytest.raises(UsageError, match=r": has swarden .* in build other; install the same packages"):
            next(other.run([Job("two", ran.append, (2,))], lambda *_: None))

    assert results == [("one", None)]
    assert ran == [1]


# --- events


def test_events_of_a_night_fit_their_schema_and_tell_each_kind_once(tmp_path):
    def run_shard(*_):
        done = shard_result(LEAK)
        done.result.tallies.probes["window_slid"] = 1
        return done._replace(result=replace(done.result, replaced=["worker 0 was killed by SIGKILL"]))

    events: list[Event] = []
    night_of(tmp_path, table(run_shard), events=events)

    lines = [msgspec.json.encode(event) for event in events]
    assert [msgspec.json.decode(line, type=KINDS) for line in lines] == events
    kinds = [msgspec.json.decode(line)["event"] for line in lines]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "phase": len(PHASES),
        "probe": 1,
        "worker": 3,
        "runs": 3,
        "finding": 1,
    }


def test_record_of_a_night_is_read_back_as_it_was(tmp_path):
    night = night_of(tmp_path, table(leaking))

    assert read(tmp_path / "nights" / night.name / "night.json", Night, tmp_path) == night
