"""The first version of an engine that an op-log fails on, and the first on which it no longer does."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.registry import target_of
from swarden.harness.core.releases import Releases, parsed
from swarden.harness.core.replay import Replays, Verdict
from swarden.harness.search.judge import BY_LAW, judge_alone

Note = Callable[[str], None]  # prints a line
Install = Callable[[str, Releases, str], object]  # installs a release, by its name, if it is missing
IS_BAD = {Verdict.FIXED: False, Verdict.FAILED: True}  # all others may hide the failure


class Boundaries(NamedTuple):
    """The oldest version of the failing range, None if no older one passes; the first one after it, None if none is."""

    first_failing: str | None
    first_fixed: str | None


class VersionRange(NamedTuple):
    """The versions to search, from the oldest to the newest installed by default; with `every` the log runs on each."""

    oldest: str | None
    newest: str | None
    every: bool = False


class Bisection(NamedTuple):
    """The boundaries of a failure, and the verdict on each version that was replayed, of all that were searched."""

    engine: str
    versions: Sequence[str]
    boundaries: Boundaries
    verdicts: Mapping[str, str]
    left_out: Sequence[str]  # those that are neither good nor bad

    def __str__(self) -> str:
        first_failing, first_fixed = self.boundaries
        judged = [version for version in self.versions if version not in self.left_out]
        since = f"fails since {first_failing}" if first_failing else f"fails in {judged[0]} already"
        until = f"fixed in {first_fixed}" if first_fixed else f"not fixed up to {judged[-1]}"
        beside = f"; cannot be judged on {', '.join(self.left_out)}" if self.left_out else ""
        return f"{self.engine}: {since}, {until}{beside}"


def bisected(
    path: Path, engine: str | None, limits: VersionRange, note: Note, install: Install | None = None
) -> Bisection:
    """Replay an op-log on versions of its engine, each in a process of its own."""
    header = load_log(path).header
    name, failing = engine or header.engine, header.version
    releases = releases_of(name)
    versions = _range(name, failing, limits, note, install=install is not None)
    if failing not in versions:
        raise UsageError(f"{path}: is for {name} {failing}, want that version among {', '.join(versions)}")

    def replay(version: str) -> Replays:
        if install is not None:
            install(f"{name}=={version}", releases, version)
        return judge_alone(path, f"{name}=={version}", BY_LAW)

    return Search(name, versions, replay, note).around(failing, path, every=limits.every)


class Search(NamedTuple):
    """A search among versions of an engine; `replay` is called once at most for each of them."""

    engine: str
    versions: Sequence[str]
    replay: Callable[[str], Replays]
    note: Note

    def around(self, failing: str, path: Path, *, every: bool) -> Bisection:
        """The boundaries around a version that fails; raises UsageError if the op-log does not fail there."""
        ends: dict[str, Replays] = {}

        def fails(version: str) -> bool | None:
            if version not in ends:
                ends[version] = self.replay(version)
                self.note(f"{version}: {ends[version].text}")
            return IS_BAD.get(ends[version].verdict)

        if not fails(failing):
            raise UsageError(f"{path}: {ends[failing].text} on {failing}; want a log that fails there")
        if every:
            list(map(fails, self.versions))
        around = boundaries(self.versions, failing, fails)
        verdicts = {version: ends[version].verdict.value for version in self.versions if version in ends}
        left_out = [version for version in verdicts if ends[version].verdict not in IS_BAD]
        return Bisection(self.engine, self.versions, around, verdicts, left_out)


def boundaries(versions: Sequence[str], failing: str, fails: Callable[[str], bool | None]) -> Boundaries:
    """Search both ways from a version that fails.

    Calls `fails` O(log n) times, and once more for each version that it leaves out because the answer is None.
    """
    index = versions.index(failing)
    first, older = _last_failing(versions[index::-1], fails)
    _, newer = _last_failing(versions[index:], fails)
    return Boundaries(first if older is not None else None, newer)


def _last_failing(versions: Sequence[str], fails: Callable[[str], bool | None]) -> tuple[str, str | None]:
    """The last version that fails, and the next one, which passes; None if there is none.  The first one fails."""
    judged = list(versions)
    last, end = 0, len(judged)  # judged[last] fails, judged[end] passes
    while end - last > 1:
        middle = (last + end) // 2
        verdict = fails(judged[middle])
        if verdict is None:
            del judged[middle]
            end -= 1
        else:
            last, end = (middle, end) if verdict else (last, middle)
    return judged[last], judged[end] if end < len(judged) else None


def releases_of(name: str) -> Releases:
    """The releases of an engine; raises UsageError if it has none."""
    releases = target_of(name).releases
    if releases is None:
        raise UsageError(f"{name}: has no versions that are installed side by side; see 'swarden engines'")
    return releases


def _range(name: str, failing: str, limits: VersionRange, note: Note, *, install: bool) -> list[str]:
    """The versions to search, oldest first; without `install` only installed ones, and notes which are missing."""
    releases = releases_of(name)
    installed = releases.installed()
    there = sorted({*installed, *_on_index(releases, note, needed=install)}, key=parsed)
    named = there if install else installed
    for option, version in (("op-log of", failing), ("--from", limits.oldest), ("--to", limits.newest)):
        if version is not None and version not in named:
            raise UsageError(f"{option} {version}: {_why_not(name, version, installed, there)}")
    ends = sorted([failing, *installed], key=parsed)
    first, last = (parsed(version) for version in (limits.oldest or ends[0], limits.newest or ends[-1]))
    if last < first:
        raise UsageError(f"--from {limits.oldest} is newer than --to {limits.newest}; exchange them")
    between = [version for version in there if first <= parsed(version) <= last]
    missing = [version for version in between if version not in installed]
    if missing and not install:
        each = f"those that the search needs, {releases.release_size} each"
        note(f"not installed: {', '.join(missing)}; 'swarden bisect FILE --install' installs {each}")
    return [version for version in between if version in named]


def _why_not(name: str, version: str, installed: Sequence[str], there: Sequence[str]) -> str:
    """The reason and the remedy for a version that cannot be searched."""
    if version in there:
        present = ", ".join(installed) or "none"
        return f"is not installed, but {present}; 'swarden bisect FILE --install' installs what is missing"
    return f"is no release of {name}; the newest is {there[-1]}" if there else f"no release of {name} is known"


def _on_index(releases: Releases, note: Note, *, needed: bool) -> list[str]:
    """The releases of the package index; [] if it cannot be read and is not `needed`."""
    try:
        return releases.on_index()
    except UsageError as error:
        if needed:
            raise
        note(f"only installed releases are known: {error}")
        return []
