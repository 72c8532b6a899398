"""Renames of archived findings: the archive of an earlier build gets the fingerprints of this build."""

import msgspec

from swarden.harness.core.fingerprint import current_fingerprint
from swarden.harness.nightly.archive import URGENCY, Archive, Archived, Status
from swarden.harness.search.archive_files import ArchiveError

SUMMARIES = ("finding.json", "quarantine.json")


def rename_findings(archive: Archive, errors: list[str]) -> None:
    """Move each finding with a fingerprint of an earlier build to its fingerprint of today; two can become one.

    A finding with a file that cannot be read or moved is reported, and stays.  If the process dies, the next call
    continues.
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
    """Move the files of a finding to its new name, where a finding may be already.

    Of two sightings of one night the worse is kept, of two quarantines the shorter.  A finding that is neither in
    quarantine nor fixed ends the quarantine of the other.
    """
    read = list(old.folder.glob("seen/*.json"))
    sightings, _ = old.sightings, old.quarantine  # read now, for their errors
    if old.errors:
        raise ArchiveError("; ".join(old.errors))
    new = archive.finding(old.engine, name)
    seen = [one for one in (old, new) if one.sightings]
    held = [one.quarantine for one in seen if one.status is not Status.FIXED]
    held = held or [one.quarantine for one in seen if one.quarantine is not None]
    if quarantines := [one for one in held if one is not None]:
        new.put_in_quarantine(min(quarantines, key=lambda one: one.until))
    if None in held:
        (new.folder / "quarantine.json").unlink(missing_ok=True)
    for one in sightings:
        same = [other for other in new.sightings if (other.night, other.engine) == (one.night, one.engine)]
        worst = min([one, *same], key=lambda sighting: URGENCY.index(sighting.status))
        names = [current_fingerprint(name) for name in worst.fingerprints]
        after = sorted({name for sighting in (one, *same) for name in sighting.after})
        new.put(msgspec.structs.replace(worst, fingerprints=names, after=after))
    for path in sorted(old.folder.iterdir()):
        if path.is_file() and path.name not in SUMMARIES:
            path.replace(new.folder / path.name)
    for path in (*read, *(old.folder / name for name in SUMMARIES)):
        path.unlink(missing_ok=True)
    (old.folder / "seen").rmdir()
    old.folder.rmdir()
