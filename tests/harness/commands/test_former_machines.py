"""An op-log of an earlier build, whose machine is a test of tests/quality now, is an error that says so."""

import pytest

from swarden.harness.core.registry import OWN
from swarden.harness.search.archive import Archive, Sighting, Status
from tests.harness.some_processes import swarden

LOG = '{"format":2,"engine":"swarden","machine":"ledger","configs":[{}]}\n{"op":"take"}\n'
WHY = "machine ledger is a test of tests/quality now, and no machine any more"


@pytest.fixture
def archive(tmp_path):
    """An archive whose only finding has such a log."""
    place = Archive(tmp_path / "a")
    finding = place.finding(OWN, "law/full page/differs")
    finding.add(Sighting(night="2026-11-25-01-aaaa", engine=OWN, status=Status.NEW, log="old.oplog"))
    (finding.folder / "old.oplog").write_text(LOG)
    return place


@pytest.mark.parametrize("command", ["replay", "show", "shrink"])
def test_command_names_the_former_machine(command, tmp_path):
    (tmp_path / "old.oplog").write_text(LOG)

    run = swarden(command, "old.oplog", cwd=tmp_path)

    [line] = (run.stdout + run.stderr).splitlines()
    assert run.returncode == 2
    assert f"old.oplog:1: the header: {WHY}" in line


def test_verified_archive_has_an_error(archive, tmp_path):
    run = swarden("archive", "verify", "--archive", archive.root, cwd=tmp_path)

    assert run.returncode == 2
    assert WHY in run.stdout.splitlines()[0]


def test_night_ends_with_an_error(archive, tmp_path):
    order = ("--profile", "smoke", "--workers", 1, "--runs", 8, "--archive", archive.root)

    run = swarden("nightly", *order, cwd=tmp_path)

    assert (run.stdout.splitlines()[0], run.returncode) == ("replay: 1 error", 2), run.stderr
    [finding] = Archive(archive.root).findings([])
    assert WHY in finding.sightings[-1].why
