"""Mutes: known bugs and findings that are put aside until a date, for a reason, in a file that maintainers read.

The file is TOML, a table for each name:

    ["work_makes_progress/engine/stuck"]
    until = 2026-12-31
    reason = "issue 12345"
"""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import read_toml, write_whole
from swarden.harness.core.printable import printable
from swarden.harness.core.validation import validation_text

MUTES = Path("swarden-mutes.toml")


class Mute(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A known bug or a finding is put aside until a date; from then on it counts again."""

    until: date
    reason: str

    def is_active(self, day: str) -> bool:
        """Whether it is put aside on a day, as in 2026-12-31."""
        return day < self.until.isoformat()

    def __str__(self) -> str:
        return printable(f"until {self.until}: {self.reason}")


def mutes_of(path: Path) -> dict[str, Mute]:
    """The mutes in a file, by name; none if there is no such file.  Raises UsageError for a file that is not valid."""
    mutes = {}
    for name, entry in (read_toml(path) if path.exists() else {}).items():
        try:
            mutes[name] = msgspec.convert(entry if isinstance(entry, dict) else {}, Mute)
        except msgspec.ValidationError as error:
            raise UsageError(f"{path}: {printable(name)}: {validation_text(entry, error)}; correct it") from error
    return mutes


def add_mute(path: Path, name: str, mute: Mute) -> None:
    """Add an entry at the end of a file; raises UsageError if the file is not valid, or has one of that name."""
    if (old := mutes_of(path).get(name)) is not None:
        raise UsageError(f"{path}: has {printable(name)} {old}; change that entry")
    before = path.read_text("utf-8") if path.exists() else ""
    key, reason = (json.dumps(printable(text), ensure_ascii=False) for text in (name, mute.reason))
    entry = f"[{key}]\nuntil = {mute.until}\nreason = {reason}\n"
    write_whole(path, "\n".join([*before.splitlines(), *[""] * bool(before), entry]).encode())


def active(mutes: Mapping[str, Mute]) -> dict[str, Mute]:
    """The mutes whose date has not come, by name."""
    return {name: mute for name, mute in mutes.items() if mute.is_active(today())}


def mute_of(mutes: Mapping[str, Mute], name: str, fingerprint: str) -> Mute | None:
    """The mute of a finding by its name, or of all findings with its fingerprint."""
    return mutes[name] if name in mutes else mutes.get(fingerprint)


def today() -> str:
    """The date in UTC."""
    return datetime.now(UTC).date().isoformat()
