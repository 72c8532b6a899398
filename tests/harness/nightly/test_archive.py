"""The archive of nightly runs: its files, merged by copying."""

import json
import shutil
from datetime import date

import msgspec
import pytest

from swarden.harness.core.replay import Verdict
from swarden.harness.nightly.archive import Archive, Archived, FindingSummary, Night, Sighting, Status
from swarden.harness.nightly.night_records import ShardRecord
from swarden.harness.search.archive_files import ArchiveError, UnreadableFile, read
from swarden.harness.search.mutes import Mute

FINGERPRINT = "unit_has_one_owner/swa page/free_in_use/free+tree"
FIRST, SECOND, THIRD = "2026-11-24-01-aaaa", "2026-11-25-01-bbbb", "2026-11-26-01-cccc"


def sighting(night: str, status: Status, **fields) -> Sighting:
    return Sighting(night=night, engine="swarden", version="0.1.0", status=status, **fields)


def seen(archive: Archive, *sightings: Sighting) -> Archived:
    for sighting in sightings:
        archive.finding("swarden", FINGERPRINT).add(sighting)
    return archive.finding("swarden", FINGERPRINT)


def test_summary_of_a_finding_follows_from_its_sightings(tmp_path):
    """Nights in which it is fixed are no sightings of the failure; the same night again is counted once."""
    archive = Archive(tmp_path)
    new = sighting(FIRST, Status.NEW, log="a.oplog")

    found = seen(archive, new, new, sighting(SECOND, Status.RECURRING, log="b.oplog"), sighting(THIRD, Status.FIXED))

    assert read(found.folder / "finding.json", FindingSummary, tmp_path) == found.summary() == FindingSummary(
        engine="swarden",
        fingerprint=FINGERPRINT,
        version="0.1.0",
        status=Status.FIXED,
        first_seen=FIRST,
        last_seen=SECOND,
        seen=2,
        log="b.oplog",
    )  # fmt: skip


def test_archives_are_merged_by_copying(tmp_path):
    """Whichever archive is copied over the other, the result has the sightings of both."""
    ours, theirs = Archive(tmp_path / "a"), Archive(tmp_path / "b")
    seen(ours, sighting(FIRST, Status.NEW), sighting(THIRD, Status.FIXED))
    seen(theirs, sighting(SECOND, Status.NEW))

    shutil.copytree(theirs.root, ours.root, dirs_exist_ok=True)

    [merged] = ours.findings([])
    assert [sighting.night for sighting in merged.sightings] == [FIRST, SECOND, THIRD]
    assert (merged.summary().seen, merged.status) == (2, Status.FIXED)


FUTURE = "2099-01-01-01-ffff"


def test_night_with_a_clock_in_the_future_hides_no_later_one(tmp_path):
    """Each night knows those before it; the same sighting again stays where it is."""
    archive = Archive(tmp_path)
    fixed = sighting(FUTURE, Status.FIXED, log="a.oplog")

    found = seen(archive, sighting(FIRST, Status.NEW), fixed, sighting(SECOND, Status.REOPENED), fixed)

    assert [sighting.night for sighting in found.sightings] == [FIRST, FUTURE, SECOND]
    assert (found.status, found.summary().last_seen) == (Status.REOPENED, SECOND)
    assert found.status_of(Verdict.FAILED, THIRD, "swarden") is Status.RECURRING


def test_finding_of_two_releases_is_open_while_one_fails(tmp_path):
    """All versions of an engine share the folder of a finding."""
    archive = Archive(tmp_path)
    for engine, status in (("sglang==0.5.17", Status.RECURRING), ("sglang==0.5.23", Status.FIXED)):
        archive.finding(engine, FINGERPRINT).add(Sighting(night=FIRST, engine=engine, status=status))

    [found] = archive.findings([])

    assert found.status is Status.RECURRING


def test_fingerprints_that_differ_in_punctuation_or_are_long_have_folders_of_their_own(tmp_path):
    archive = Archive(tmp_path)
    for name in ("a/b", "a b", "a" * 300, "a" * 301):
        archive.finding("swarden", name).add(sighting(FIRST, Status.NEW))

    assert len(archive.findings([])) == 4


def test_quarantine_is_kept_and_is_part_of_the_summary(tmp_path):
    archive = Archive(tmp_path)
    quarantine = Mute(reason="fixed upstream", until=date(2026, 12, 31))

    seen(archive, sighting(FIRST, Status.NEW)).put_in_quarantine(quarantine)
    found = seen(archive, sighting(SECOND, Status.RECURRING))

    assert read(found.folder / "finding.json", FindingSummary, tmp_path).quarantine == quarantine


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        pytest.param("finding.json", b"{", "not a FindingSummary", id="torn-summary"),
        pytest.param("finding.json", b'{"engine":7}', "not a FindingSummary", id="wrong-type"),
        pytest.param(f"seen/{FIRST}-swarden.json", b"\xff", "not a Sighting", id="damaged-sighting"),
        pytest.param("quarantine.json", b"[]", "not a Mute", id="damaged-quarantine"),
    ],
)
def test_file_that_cannot_be_read_is_named_and_stays(tmp_path, name, content, error):
    archive = Archive(tmp_path)
    path = seen(archive, sighting(FIRST, Status.NEW)).folder / name
    path.write_bytes(content)
    errors: list[str] = []

    for found in archive.findings(errors):
        found.summary()
        errors += found.errors

    assert len(errors) == 1
    assert errors[0].startswith(f"{path}: {error}")
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["../elsewhere", "/tmp", "..", "a/b", ""])
def test_night_whose_name_is_a_path_is_refused(tmp_path, name):
    """The files of such a night would be read, renamed and removed outside of the archive."""
    night = {"command": "", "swarden": "", "seed": 1, "profile": "nightly", "started": "", "engines": []}
    (tmp_path / "night.json").write_bytes(msgspec.json.encode({**night, "name": name}))

    with pytest.raises(UnreadableFile, match=r"not a Night: Expected `str` matching regex .* - at `\$.name`"):
        read(tmp_path / "night.json", Night, tmp_path)


@pytest.mark.parametrize(
    "field", [{"night": "../elsewhere"}, {"log": "a\0b"}, {"log": "../a.oplog"}, {"log": 300 * "a"}]
)
def test_sighting_that_names_a_path_is_refused(tmp_path, field):
    """A finding that is renamed would write it elsewhere."""
    valid = msgspec.to_builtins(sighting(FIRST, Status.NEW))
    (tmp_path / "seen.json").write_bytes(msgspec.json.encode({**valid, **field}))

    with pytest.raises(UnreadableFile, match="not a Sighting"):
        read(tmp_path / "seen.json", Sighting, tmp_path)


@pytest.mark.parametrize("tallies", [{"ops": {"a": "b"}}, {"steps": -1}, {"steps": 10**400}])
def test_counts_that_no_rate_can_be_made_of_are_refused(tmp_path, tallies):
    record = {"engine": "a", "ordinal": 0, "first_batch": 0, "batches": 1, "tallies": tallies}
    (tmp_path / "shard.json").write_text(json.dumps(record))

    with pytest.raises(UnreadableFile, match="not a ShardRecord"):
        read(tmp_path / "shard.json", ShardRecord, tmp_path)


def test_archive_that_cannot_be_written_is_one_line_with_a_remedy(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ArchiveError, match=r"file/findings/.*: cannot be written: Not a directory; free space, or"):
        Archive(tmp_path / "file").finding("swarden", FINGERPRINT)
