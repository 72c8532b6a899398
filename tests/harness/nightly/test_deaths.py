"""A night that dies: its continuation, and its findings in the next night."""

import msgspec
import pytest

from swarden.harness.commands.nightly import PHASES
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.nightly.archive import Archive
from swarden.harness.nightly.night_records import Canary
from swarden.harness.nightly.reports import markdown
from swarden.harness.nightly.shards import BATCHES
from swarden.harness.search.archive_files import ArchiveError
from tests.harness.nightly.some_nights import (
    DOUBLE_FREE,
    FAILED,
    LEAK,
    ORDER,
    leaking,
    night_of,
    settled,
    shard_result,
    statuses,
    table,
)


class Killed(BaseException):
    """The coordinator dies."""


OTHER = Canary(engine="another", mutant="")


def dies_in_shard(ordinal: int):
    def run_shard(plan, *_):
        if plan.first_run.batch == ordinal * BATCHES:
            raise Killed
        return shard_result(LEAK)

    return run_shard


@pytest.mark.parametrize("ordinal", range(3))
def test_night_continues_after_a_death_and_counts_nothing_twice(tmp_path, ordinal):
    """Only the shards that had not ended run again; the result is that of a night without the death."""
    with pytest.raises(Killed):
        night_of(tmp_path / "a", table(dies_in_shard(ordinal)))
    [folder] = (tmp_path / "a" / "nights").iterdir()
    second = table(leaking)

    night = night_of(tmp_path / "a", second, folder.name)
    whole = night_of(tmp_path / "b", table(leaking), ORDER._replace(seed=night.seed))

    assert second.count("run_shard") == 3 - ordinal
    assert night.engines[0].tallies == whole.engines[0].tallies
    assert night.shards == whole.shards
    assert statuses(night) == statuses(whole) == {LEAK: "new"}


def test_night_that_dies_while_it_settles_publishes_each_finding_once(tmp_path):
    def dies(finding, *_):
        if finding.fingerprint == DOUBLE_FREE:
            raise Killed
        return settled(finding)

    with pytest.raises(Killed):
        night_of(tmp_path, table(lambda *_: shard_result(LEAK, DOUBLE_FREE), settle=dies))
    [folder] = (tmp_path / "nights").iterdir()
    second = table()

    night = night_of(tmp_path, second, folder.name)

    assert [finding.fingerprint for name, finding in second.calls if name == "settle"] == [DOUBLE_FREE]
    assert statuses(night) == {LEAK: "new", DOUBLE_FREE: "new"}
    assert {finding.summary().seen for finding in Archive(tmp_path).findings([])} == {1}


def dead_night(root):
    """The name of a night that has died after two shards with one failure."""
    with pytest.raises(Killed):
        night_of(root, table(dies_in_shard(2)))
    [folder] = (root / "nights").iterdir()
    return folder.name


def test_findings_of_a_dead_night_are_published_by_the_next_one(tmp_path):
    """The night after it does not confirm them again."""
    dead, third = dead_night(tmp_path), table(replay_log=FAILED)

    nights = [night_of(tmp_path, table()), night_of(tmp_path, third)]

    assert [statuses(night) for night in nights] == [{LEAK: "new"}, {LEAK: "recurring"}]
    assert third.count("settle") == 0
    [line] = nights[0].not_ended
    folder = tmp_path / "nights" / dead
    assert line == (f"night {dead} has not ended: 2 shards not settled; to continue: swarden nightly --resume {folder}")
    assert "has not ended: 2 shards" in markdown(nights[0])


def test_finding_of_a_dead_night_that_does_not_fail_any_more_is_not_published(tmp_path):
    dead_night(tmp_path)

    night = night_of(tmp_path, table(settle=lambda finding, *_: settled(finding, failures=0)))

    assert (night.findings, night.exit_code) == ([], ExitCode.CLEAN)


def test_damaged_shard_of_a_dead_night_is_told_and_stays(tmp_path):
    """The findings of the other shard of that night are published."""
    [damaged, _] = sorted((tmp_path / "nights" / dead_night(tmp_path) / "shards").iterdir())
    damaged.write_bytes(b"{")

    night = night_of(tmp_path, table())

    assert (statuses(night), night.exit_code) == ({LEAK: "new"}, ExitCode.MISUSE)
    assert damaged.read_bytes() == b"{"


def test_shard_that_cannot_be_written_ends_the_night_and_runs_again(tmp_path):
    """The journal cannot be written, as on a full disk."""

    def fills_disk(*_):
        (tmp_path / "nights").chmod(0o755)
        [folder] = (tmp_path / "nights").iterdir()
        (folder / "shards").touch()  # where the folder of the journal should be
        return shard_result()

    with pytest.raises(ArchiveError, match="cannot be written"):
        night_of(tmp_path, table(fills_disk))
    [folder] = (tmp_path / "nights").iterdir()
    (folder / "shards").unlink()

    night = night_of(tmp_path, table(), folder.name)

    assert night.engines[0].tallies.runs == 12


@pytest.mark.parametrize("is_torn", [True, False], ids=["torn", "of-another-engine"])
def test_damaged_shard_of_the_journal_runs_again_and_is_kept(tmp_path, is_torn):
    with pytest.raises(Killed):
        night_of(tmp_path, table(dies_in_shard(2)))
    [folder] = (tmp_path / "nights").iterdir()
    path = min(folder.glob("shards/*.json"))
    damaged = b"{" if is_torn else path.read_bytes().replace(b'"engine": "swarden"', b'"engine": "another"')
    path.write_bytes(damaged)
    second = table(leaking)

    night = night_of(tmp_path, second, folder.name)

    assert second.count("run_shard") == 2
    assert night.engines[0].tallies.runs == 12
    assert [path.read_bytes() for path in folder.glob("shards/*.unreadable")] == [damaged]
    assert night.exit_code == ExitCode.MISUSE


def test_ended_night_is_not_continued(tmp_path):
    night = night_of(tmp_path, table())

    with pytest.raises(UsageError, match="has ended; start a new night"):
        night_of(tmp_path, table(), night.name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("started", "yesterday"),
        ("started", "2026-99-99T00:00:00Z"),
        ("profile", "weekly"),
        ("name", "2026-01-01-01-aaaa"),
        ("canaries", [OTHER]),
    ],
)
def test_damaged_night_is_not_continued(tmp_path, field, value):
    begun = night_of(tmp_path, table(), phases=PHASES[:2])
    path = tmp_path / "nights" / begun.name / "night.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(begun, **{field: value})))

    with pytest.raises(UsageError, match=r"night.json: .*; restore it$"):
        night_of(tmp_path, table(), begun.name)


def test_phases_that_have_ended_are_not_run_again(tmp_path):
    begun = night_of(tmp_path, table(), phases=PHASES[:2])
    second = table()

    night_of(tmp_path, second, begun.name)

    assert second.count("find_canary") == 0
