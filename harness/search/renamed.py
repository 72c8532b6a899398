"""Renames of archived findings: the archive of an earlier build gets the fingerprints of this build."""

import shutil

import msgspec

from harness.core.fingerprint import current_fingerprint
from harness.search.archive import URGENCY, Archive, Archived, ArchiveError


def rename_findings(archive: Archive, errors: list[str]) -> None:
    """Move each finding with a fingerprint of an earlier build to its fingerprint of today; two can become one.

    A finding with a file that cannot be read or moved is told, and stays.  After a death the next call goes on.
    """
    for old in archive.findings([]):
        name = current_fingerprint(old.fingerprint)
        if name == old.fingerprint:
            continue
        try:
            _move(old, archive, name)
        except ArchiveError as error:
            errors.append(str(error))
        except OSError as error:
            errors.append(f"{old.folder}: cannot be moved: {error.strerror}; make it writable, or move it away")


def _move(old: Archived, archive: Archive, name: str) -> None:
    """Move the files of a finding: of two sightings of one night the worse, of two quarantines the longer."""
    sightings, quarantine = old.sightings, old.quarantine
    if old.errors:
        raise ArchiveError("; ".join(old.errors))
    new = archive.finding(old.engine, name)
    for one in sightings:
        same = [other for other in new.sightings if (other.night, other.engine) == (one.night, one.engine)]
        worst = min([one, *same], key=lambda sighting: URGENCY.index(sighting.status))
        new.add(msgspec.structs.replace(worst, fingerprints=[current_fingerprint(name) for name in worst.fingerprints]))
    if quarantine is not None:
        new.put_in_quarantine(max(quarantine, new.quarantine or quarantine, key=lambda one: one.until))
    for path in sorted(old.folder.iterdir()):
        if path.is_file() and path.name not in ("finding.json", "quarantine.json"):
            path.replace(new.folder / path.name)
    shutil.rmtree(old.folder)
