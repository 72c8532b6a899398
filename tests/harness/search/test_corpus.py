"""A corpus: rare runs are kept, run first in a later campaign, and judge no random traffic."""

from pathlib import Path

import msgspec
import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import write_whole
from swarden.harness.core.oplog import Header, OpLog, OpLogError
from swarden.harness.core.ops import Drain, Flush, Op, Step, Submit
from swarden.harness.core.replay import run_log
from swarden.harness.search import corpus
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.corpus import RareRun, changed, digest_of, files_of, logs_of, rarest_first, write
from swarden.harness.search.traffic.profiles import PROFILES

OPLOGS = Path(__file__).parents[2] / "quality" / "oplogs"
HEADER = Header(engine="swarden", configs=[{}])


def log_of(*ops: Op) -> OpLog:
    return OpLog(HEADER, list(ops))


def rare(ops, features, steps):
    return RareRun(log_of(*ops), frozenset(features), steps)


def worked(folder, *, mutant=None, max_runs=1, seed=1):
    plan = Plan(
        engine="swarden",
        profile=PROFILES["smoke"],
        seed=seed,
        max_runs=max_runs,
        machine="engine",
        mutant=mutant,
        corpus=folder,
    )
    return Worker(plan, lambda _: None).work()


def healthy_log(mutant):
    """The log that shows a mutant, without the mutant."""
    log = load_log(OPLOGS / f"{mutant}.oplog")
    return log.with_header(mutant=None, expected=None)


def test_log_of_a_corpus_finds_a_bug_that_random_runs_miss(tmp_path):
    write(tmp_path, [healthy_log("S142")], replaced=())

    assert worked(None, mutant="S142").findings == {}
    [finding] = worked(tmp_path, mutant="S142").findings.values()
    assert finding.invariant == "evicted_nodes_are_written_back"


def test_changed_logs_show_a_bug_that_neither_of_their_logs_shows():
    header = msgspec.structs.replace(healthy_log("S142").header, mutant="S142")
    first, second, _ = healthy_log("S142").ops
    logs = [OpLog(header, [first, Step(count=5)]), OpLog(header, [second, Step()])]
    failures = [
        run_log(OpLog(header, [*log.ops, Drain()])).failure for log in (*logs, *changed(logs, seed=1, count=99))
    ]

    assert failures[:2] == [None, None]
    assert any(failures)


def test_runs_of_the_corpus_do_not_judge_the_random_traffic(tmp_path, monkeypatch):
    monkeypatch.setattr(Worker, "aborts_at_end", False)  # else it depends on the ordinal of a run
    write(tmp_path, [healthy_log("S142")], replaced=())
    alone, both = worked(None), worked(tmp_path)

    assert both.replayed == {path.name for path in files_of(tmp_path)}
    assert both.tallies.steps > alone.tallies.steps
    for name in ("runs", "ops", "noops", "probes", "machine_runs"):
        assert getattr(both.tallies, name) == getattr(alone.tallies, name)


def test_healthy_runs_are_kept_once(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "CHANGED_PER_BATCH", 0)
    first = worked(tmp_path, max_runs=4)
    write(tmp_path, rarest_first(first.rare), replaced=first.replayed)
    again = worked(tmp_path, max_runs=4)

    assert first.rare
    assert len(again.rare) == len(files_of(tmp_path)), "the same random runs have no new features"


def test_run_with_a_planted_bug_is_not_kept(tmp_path):
    assert worked(tmp_path, mutant="S142", max_runs=4).rare == []


def test_fewest_short_logs_with_all_features_the_rarest_first():
    common = rare([Step()], {1, 2}, steps=10)
    both = rare([Step(), Flush()], {1, 2, 3, 4}, steps=10)
    lengthy = rare([Step(), Flush(), Submit()], {1, 2, 3, 4}, steps=99)
    rarest = rare([Submit()], {1, 5, 6, 7}, steps=10)

    assert rarest_first([common, lengthy, both, rarest]) == [rarest.log, both.log]


def test_written_logs_come_first_and_replace_those_that_were_run(tmp_path):
    write(tmp_path, [log_of(Step(count=1)), log_of(Step(count=2))], replaced=())
    first, second = [path.name for path in files_of(tmp_path)]
    write(tmp_path, [log_of(Step(count=3)), log_of(Step(count=3), Drain())], replaced=[first])

    assert [entry.log.ops for entry in logs_of(tmp_path, "swarden")] == [[Step(count=3)], [Step(count=2)]]
    assert second.partition("-")[2] in {path.name.partition("-")[2] for path in files_of(tmp_path)}


def test_only_logs_of_the_machine_are_run(tmp_path):
    sides = [{"role": "prefill"}, {"role": "decode"}]
    of_pair = OpLog(msgspec.structs.replace(HEADER, machine="pd", configs=sides), [])
    write(tmp_path, [of_pair, log_of(Step())], replaced=())

    assert [entry.log.header.machine for entry in logs_of(tmp_path, "swarden", "pd")] == ["pd"]


def test_unreadable_log_is_named(tmp_path):
    (tmp_path / "0000-torn.oplog").write_text('{"format":3,"engine":"swarden","configs":[{"page_size":"x"}]}\n')

    with pytest.raises(OpLogError, match=r"0000-torn\.oplog:1: .*page_size"):
        worked(tmp_path)


def test_corpus_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "0000-large.oplog").open("wb") as file:
        file.truncate((128 << 20) + 1)  # a hole, which takes no space

    with pytest.raises(UsageError, match=r"has op-logs of 134217729 bytes; want at most 134217728$"):
        digest_of(tmp_path)


def test_log_that_another_campaign_adds_meanwhile_stays(tmp_path, monkeypatch):
    write(tmp_path, [log_of(Step(count=1))], replaced=())
    added = tmp_path / "0000-added.oplog"

    def write_after_the_other(path, content, **options):
        added.write_bytes(b"theirs")
        write_whole(path, content, **options)

    monkeypatch.setattr(corpus, "write_whole", write_after_the_other)
    write(tmp_path, [log_of(Step(count=2))], replaced=())

    assert added.read_bytes() == b"theirs"
    assert len(files_of(tmp_path)) == 3


def test_log_that_another_campaign_removes_meanwhile_is_skipped(tmp_path, monkeypatch):
    """The first is gone after the folder was listed, the second after the sizes were read."""
    (tmp_path / "0000-gone.oplog").symlink_to("nothing")
    listed = [*files_of(tmp_path), tmp_path / "0001-gone.oplog"]
    monkeypatch.setattr(corpus, "files_of", lambda _: listed)

    write(tmp_path, [log_of(Step())], replaced=())

    assert listed == [tmp_path / "0001-gone.oplog"]
    assert len(list(tmp_path.glob("0000-*.oplog"))) == 2
