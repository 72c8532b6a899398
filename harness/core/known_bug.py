"""A known bug of a release: its symptom, its cause, its releases, the fix, and its op-logs.

Each bug of an engine is a file `findings/NAME.toml` beside the engine's target; `NAME.oplog` shows it, and further
op-logs are `NAME--WHAT.oplog`.  The documents are made from these files, a fix is planted from them, and a failure is
known if its log passes with the fix.  A bug under embargo (SECURITY.md) is private: its files are in a folder for its
engine below the one that SWARDEN_EMBARGO names, and a run without the variable does not know it.
"""

import os
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import read_toml
from swarden.harness.core.patch import Hunk, Patch
from swarden.harness.core.releases import parsed
from swarden.harness.core.validation import validation_text

Text = Annotated[str, msgspec.Meta(min_length=1)]
Version = Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+\.\d+(\.post\d+)?$")]
Date = Annotated[str, msgspec.Meta(pattern=r"^20\d\d-[01]\d-[0-3]\d$")]
Line = Annotated[int, msgspec.Meta(ge=1)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Verdict = Annotated[str, msgspec.Meta(pattern=r"^(comment on (issue|pull) \d+|new issue|private|not worth posting)$")]
Repository = Annotated[str, msgspec.Meta(pattern=r"^([\w.-]+/[\w.-]+@[\w.-]+)?$")]
PRIVATE = "private"
MAX_TITLE_LEN = 80  # of what a list of issues shows
EMBARGO = "SWARDEN_EMBARGO"  # the environment variable with the folder of private bugs


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the file; unknown keys are refused."""


class Span(Record, frozen=True, kw_only=True):
    """The releases that have a bug; both limits were tried."""

    first: Version  # the first one
    fixed: Version | None = None  # the first later one without the bug; None while no release fixes it

    def has(self, version: str) -> bool:
        release = parsed(version)
        return parsed(self.first) <= release and (self.fixed is None or release < parsed(self.fixed))


class Log(Record, frozen=True, kw_only=True):
    """What an op-log shows, and the releases on which it fails, if they differ from those of the bug."""

    shows: str = ""
    releases: Span | None = None


class Place(Record, frozen=True, kw_only=True):
    """A line in the function or class `name` of a file, a path from the package's folder; it proves what it `says`."""

    file: Text
    line: Line
    name: Text
    says: str = ""


class Related(Record, frozen=True, kw_only=True):
    """An issue or a pull request, of the engine's repository or of another one, and its relation to the bug."""

    kind: Literal["issue", "pull"]
    number: Annotated[int, msgspec.Meta(ge=1)]
    state: Literal["open", "closed", "merged"]
    relation: Text
    repository: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.repository, self.kind, str(self.number))))


class Fix(Record, frozen=True, kw_only=True):
    """A patch that removes the bug in the releases from the first to the last of those that are named."""

    releases: tuple[Version, Version]
    lines: tuple[Line, ...] = ()  # of each hunk, the first in its file of the last release; () without a document
    context: tuple[tuple[str, str], ...] = ()  # above and below each hunk, for `git apply`; (): in no issue
    hunks: Annotated[tuple[Hunk, ...], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        first, last = self.releases
        if parsed(first) > parsed(last):
            raise ValueError(f"releases: {first} is after {last}; name the first one first")
        if self.lines and len(self.lines) != len(self.hunks):
            raise ValueError(f"lines: are {len(self.lines)}, with {len(self.hunks)} hunks; name one for each hunk")
        if self.context and len(self.context) != len(self.hunks):
            raise ValueError(f"context: is of {len(self.context)}, with {len(self.hunks)} hunks; name one for each")

    @property
    def num_changed(self) -> int:
        """The lines that the fix removes and adds."""
        sides = [(hunk.before.split("\n"), hunk.after.split("\n")) for hunk in self.hunks]
        return sum(line[:1] in "+-" for before, after in sides for line in list(unified_diff(before, after, n=0))[2:])

    def fits(self, version: str) -> bool:
        first, last = map(parsed, self.releases)
        return first <= parsed(version) <= last


class Document(Record, frozen=True, kw_only=True):
    """The sections of a bug's document, in Markdown, beside its cause and its fix.

    An issue for the engine has no `environment`, `expected`, `actual` and `cause`.
    """

    client: str = ""  # what a client sees, and with which options
    log: str = ""  # what the server logs then
    environment: Text
    flags: str = ""  # the options of the server
    steps: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]  # that lead to the failure
    expected: Text
    actual: Text
    suggestion: str = ""
    sizes: Text  # at which sizes it happens, and how likely it is
    recovery: Text  # what ends the effect: an abort, a flush, a restart
    argument: str = ""  # why the engine is at fault and not its adapter
    notes: str = ""
    proof: str = ""  # a short program at real sizes
    prints: str = ""  # the output of the proof, or else of the program of the op-log
    no_program: str = ""  # why no program of the engine's package alone shows the bug
    by_hand: bool = False  # the op-log was written, not found by a search
    code_release: Version
    code: Annotated[tuple[Place, ...], msgspec.Meta(min_length=1)]


class KnownBug(Span, frozen=True, kw_only=True):
    """One bug."""

    name: Name
    folder: str
    effect: Text  # what clients notice
    tried: Version  # the newest release that was tried
    fingerprints: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]  # of its op-log first
    searched: Date  # the date of the last search for related issues and pull requests
    verdict: Verdict  # what to do about the bug upstream
    title: Text
    cause: Text
    broad: str = ""  # why its fix cures failures of other bugs, too: then it explains no failure
    refuses: str = ""  # why its fix ends a request unanswered that is served wrongly without it
    repository: Repository = ""  # of a server that is not a package: OWNER/NAME@TAG, with the tag of the code
    upstream: tuple[Related, ...] = ()
    logs: dict[str, Log] = {}  # by name, the further op-logs
    large_pools: dict[Text, Annotated[int, msgspec.Meta(ge=1)]] = {}  # of a server: its own op-log fails with them, too
    api: str = ""  # only a server of this one has it
    caused_by: str = ""  # flags without which no server has it
    avoided_by: str = ""  # flags with which no server has it
    fixes: tuple[Fix, ...] = ()
    document: Document | None = None

    def __post_init__(self) -> None:
        if self.document is not None and len(self.title) > MAX_TITLE_LEN:
            raise ValueError(f"title: has {len(self.title)} characters; want {MAX_TITLE_LEN}: the symptom, then a flag")
        if self.document is not None and not all(fix.lines for fix in self.fixes):
            raise ValueError("a fix has no lines, which its diff in the document shows; add them")

    @property
    def oplogs(self) -> dict[Path, Span]:
        """The op-logs, the bug's own first, each with the releases on which it fails."""
        own = sorted(Path(self.folder).glob(f"{self.name}.oplog"))
        further = sorted(Path(self.folder).glob(f"{self.name}--*.oplog"))
        return {path: self.logs.get(path.stem, Log()).releases or self for path in (*own, *further)}

    def is_called(self, fingerprints: Iterable[str]) -> bool:
        """Whether a failure has one of its fingerprints, which proves nothing."""
        return not {*self.fingerprints}.isdisjoint(fingerprints)

    def patch_for(self, version: str) -> Patch | None:
        """The fix for a release; None if no fix is for it."""
        return next((Patch(self.name, fix.hunks) for fix in self.fixes if fix.fits(version)), None)

    @property
    def patches(self) -> list[Patch]:
        """All its fixes, those for the newest releases first."""
        fixes = sorted(self.fixes, key=lambda fix: parsed(fix.releases[1]), reverse=True)
        return [Patch(self.name, fix.hunks) for fix in fixes]


@cache
def known_bugs_in(folder: Path) -> Mapping[str, KnownBug]:
    """The bugs in a folder by name; raises UsageError for an invalid file.  A missing folder has no bugs."""
    bugs = {path.stem: read_bug(path) for path in sorted(folder.glob("*.toml"))}
    return MappingProxyType(bugs)


def folders_of_bugs(engine: Path) -> list[Path]:
    """The folders of the known bugs of an engine with this folder, that of its private ones last if it is named."""
    embargo = os.environ.get(EMBARGO)
    if embargo and not Path(embargo).is_dir():
        raise UsageError(f"{EMBARGO}: {embargo} is no folder; correct it, or unset it")
    return [engine / "findings", *([Path(embargo) / engine.name] if embargo else [])]


def read_bug(path: Path) -> KnownBug:
    """The bug in a file; raises UsageError if the file is invalid."""
    raw = read_toml(path)
    if derived := raw.keys() & {"name", "folder"}:
        raise UsageError(f"{path}: has {min(derived)}, which is that of the file; remove it")
    raw |= {"name": path.stem, "folder": str(path.parent)}
    try:
        return msgspec.convert(raw, KnownBug)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {validation_text(raw, error)}; correct it") from error
