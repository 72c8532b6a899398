"""Archived findings of an earlier build get the fingerprints of this build."""

from datetime import date

import pytest

from swarden.harness.core.fingerprint import slug
from swarden.harness.nightly.archive import Archive, Archived, Sighting, Status
from swarden.harness.nightly.renamed import rename_findings
from swarden.harness.search.mutes import Mute

NAME = "unit_has_one_owner/swa page/free_in_use"
OF_TREE, OF_REQUEST = f"{NAME}/free+tree", f"{NAME}/free+request"
FIRST, SECOND = "2026-11-24-01-aaaa", "2026-11-25-01-bbbb"


def seen(archive: Archive, name: str, *statuses: Status) -> Archived:
    """A finding with an op-log, seen in the first nights."""
    found = archive.finding("swarden", name)
    log = f"{slug(name)}.oplog"
    for night, status in zip((FIRST, SECOND), statuses, strict=False):
        found.add(Sighting(night=night, engine="swarden", status=status, fingerprints=[name], log=log))
    (found.folder / log).write_text(name)
    return found


def test_names_of_one_bug_become_one_finding_with_the_logs_the_nights_and_the_quarantine_of_both(tmp_path):
    """In a night that saw both names, the finding has the worse of their two statuses."""
    archive, quarantine = Archive(tmp_path), Mute(reason="known upstream", until=date(2099, 12, 31))
    seen(archive, OF_REQUEST, Status.NEW, Status.RECURRING).put_in_quarantine(quarantine)
    seen(archive, OF_TREE, Status.NEW, Status.FIXED)
    errors: list[str] = []

    rename_findings(archive, errors)

    [found] = archive.findings(errors)
    assert (found.engine, found.fingerprint, found.quarantine) == ("swarden", NAME, quarantine)
    assert [(one.status, one.fingerprints) for one in found.sightings] == [
        (Status.NEW, [NAME]),
        (Status.RECURRING, [NAME]),
    ]
    assert sorted(path.read_text() for path in found.folder.glob("*.oplog")) == sorted((OF_REQUEST, OF_TREE))
    assert found.log is not None
    assert found.log.exists()
    assert errors == []


def test_nights_of_a_renamed_finding_keep_their_order(tmp_path):
    archive, future = Archive(tmp_path), "2099-01-01-01-ffff"
    seen(archive, OF_TREE, Status.NEW)
    for night, status in ((future, Status.FIXED), (SECOND, Status.REOPENED)):
        archive.finding("swarden", OF_TREE).add(Sighting(night=night, engine="swarden", status=status))

    rename_findings(archive, [])

    [found] = archive.findings([])
    assert (found.fingerprint, [one.night for one in found.sightings]) == (NAME, [FIRST, future, SECOND])


@pytest.mark.parametrize("in_quarantine", [OF_TREE, OF_REQUEST])
def test_open_finding_outside_a_quarantine_ends_that_of_the_other(tmp_path, in_quarantine):
    archive = Archive(tmp_path)
    for name in (OF_TREE, OF_REQUEST):
        found = seen(archive, name, Status.NEW, Status.RECURRING)
        if name == in_quarantine:
            found.put_in_quarantine(Mute(reason="known upstream", until=date(2099, 12, 31)))

    rename_findings(archive, [])

    [found] = archive.findings([])
    assert (found.fingerprint, found.quarantine) == (NAME, None)


def test_fixed_finding_keeps_its_quarantine(tmp_path):
    archive, quarantine = Archive(tmp_path), Mute(reason="known upstream", until=date(2099, 12, 31))
    seen(archive, OF_TREE, Status.NEW, Status.FIXED).put_in_quarantine(quarantine)

    rename_findings(archive, [])

    [found] = archive.findings([])
    assert (found.fingerprint, found.quarantine) == (NAME, quarantine)


def test_file_of_another_tool_is_not_deleted(tmp_path):
    archive, errors = Archive(tmp_path), list[str]()
    notes = seen(archive, OF_TREE, Status.NEW).folder / "seen" / "notes.txt"
    notes.write_text("mine")

    rename_findings(archive, errors)

    assert (len(errors), notes.exists()) == (1, True)


def test_finding_with_a_damaged_file_keeps_its_name_and_is_told(tmp_path):
    archive = Archive(tmp_path)
    errors: list[str] = []
    damaged = seen(archive, OF_TREE, Status.NEW).folder / "quarantine.json"
    damaged.write_text("{")

    rename_findings(archive, errors)

    assert [error.partition(": ")[0] for error in errors] == [str(damaged)]
    assert [one.fingerprint for one in archive.findings([])] == [OF_TREE]
    assert damaged.exists()
