"""swarden bisect: the first version of an engine that an op-log fails on, and the first on which it no longer does."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from swarden.harness.commands.console import ERR, OUT, print_json
from swarden.harness.commands.engines import install_release
from swarden.harness.commands.replay import figures_of_replay
from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.process import Process
from swarden.harness.core.registry import target_of
from swarden.harness.core.releases import Releases, parsed

FAILED, ERROR = "FAILED", "ERROR"


class Boundaries(NamedTuple):
    """`first_failing`: the oldest version of the failing range around the known one; `first_fixed`: the one after it.

    None means that no older version passes, or that no version fixes it.
    """

    first_failing: str | None
    first_fixed: str | None


class VersionRange(NamedTuple):
    """The oldest and the newest version to search; None: the oldest or the newest installed one."""

    oldest: str | None
    newest: str | None


def bisect(
    path: Annotated[Path, typer.Argument(help="an op-log that fails")],
    *,
    engine: Annotated[str | None, typer.Option(help="the engine; by default that of the op-log")] = None,
    oldest: Annotated[str | None, typer.Option("--from", help="oldest version; by default of the installed")] = None,
    newest: Annotated[str | None, typer.Option("--to", help="newest version; by default of the installed")] = None,
    install: Annotated[bool, typer.Option("--install", help="install the releases that the search needs")] = False,
    every: Annotated[bool, typer.Option("--all", help="replay on each version, also where not needed")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Replay an op-log on versions of its engine, each in a process of its own.

    Without --install only the installed versions are searched, and those between them are named.

    A version fails if the same law is violated or the same error is raised, wherever its code is. A version that cannot
    run the op-log (ERROR) is left out. The search assumes that the failing versions are consecutive; --all replays all.
    """
    header = load_log(path).header
    name, known = engine or header.engine, header.version
    releases = _releases_of(name)
    versions = _range(name, known, VersionRange(oldest, newest), install=install)
    if known not in versions:
        raise UsageError(f"{path}: is for {name} {known}, want that version among {', '.join(versions)}")
    replays: dict[str, dict[str, Any]] = {}

    def fails(version: str) -> bool | None:
        if version not in replays:
            if install:
                install_release(f"{name}=={version}", releases, version)
            with Process() as process:
                replays[version] = process.call(figures_of_replay, path, f"{name}=={version}")
            ERR.print(f"{version}: {_verdict(replays[version])}", markup=False)
        figures = replays[version]
        if figures["verdict"] == ERROR:
            return None
        return figures["verdict"] == FAILED or _law_of(header.expected) in map(_law_of, figures.get("fingerprints", ()))

    if not fails(known):
        raise UsageError(f"{path}: {_verdict(replays[known])} on {known}; want a log that fails there")
    if every:
        list(map(fails, versions))
    found = boundaries(versions, known, fails)
    verdicts = {version: replays[version]["verdict"] for version in versions if version in replays}
    if as_json:
        print_json({"engine": name, "path": str(path), "verdicts": verdicts, **found._asdict()})
    else:
        OUT.print(_sentence(name, versions, found, verdicts), markup=False)
    raise typer.Exit(ExitCode.CLEAN)


def boundaries(versions: Sequence[str], failing: str, fails: Callable[[str], bool | None]) -> Boundaries:
    """Search both ways from a version that fails.

    Calls `fails` O(log n) times, and once more for each version that it leaves out because the answer is None.
    """
    known = versions.index(failing)
    first, older = _last_failing(versions[known::-1], fails)
    _, newer = _last_failing(versions[known:], fails)
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


def _releases_of(name: str) -> Releases:
    releases = target_of(name).releases
    if releases is None:
        raise UsageError(f"{name}: has no versions that are installed side by side; see 'swarden engines'")
    return releases


def _range(name: str, known: str, limits: VersionRange, *, install: bool) -> list[str]:
    """The versions to search, oldest first; without `install` only installed ones, and prints which are missing."""
    releases = _releases_of(name)
    installed = releases.installed()
    there = sorted({*installed, *_on_index(releases, needed=install)}, key=parsed)
    named = there if install else installed
    for option, version in (("op-log of", known), ("--from", limits.oldest), ("--to", limits.newest)):
        if version is not None and version not in named:
            raise UsageError(f"{option} {version}: {_why_not(name, version, installed, there)}")
    ends = sorted([known, *installed], key=parsed)
    first, last = (parsed(version) for version in (limits.oldest or ends[0], limits.newest or ends[-1]))
    if last < first:
        raise UsageError(f"--from {limits.oldest} is newer than --to {limits.newest}; exchange them")
    between = [version for version in there if first <= parsed(version) <= last]
    missing = [version for version in between if version not in installed]
    if missing and not install:
        sizes = f"{releases.release_size} each"
        ERR.print(
            f"not installed: {', '.join(missing)}; --install installs those that the search needs, {sizes}",
            markup=False,
        )
    return [version for version in between if version in named]


def _why_not(name: str, version: str, installed: Sequence[str], there: Sequence[str]) -> str:
    """The reason and the remedy for a version that cannot be searched."""
    if version in there:
        return f"is not installed, but {', '.join(installed) or 'none'}; add --install, which installs what is missing"
    return f"is no release of {name}; the newest is {there[-1]}" if there else f"no release of {name} is known"


def _on_index(releases: Releases, *, needed: bool) -> list[str]:
    """The releases of the package index; [] if it cannot be read and is not `needed`."""
    try:
        return releases.on_index()
    except UsageError as error:
        if needed:
            raise
        ERR.print(f"only installed releases are known: {error}", markup=False)
        return []


def _verdict(figures: dict[str, Any]) -> str:
    """The verdict with its reason. ERROR is mostly a configuration that the version does not support."""
    return f"{figures['verdict']} {figures.get('why') or figures.get('fingerprint') or ''}".rstrip()


def _law_of(fingerprint: str | None) -> str | None:
    """The invariant or error that a fingerprint names first."""
    return None if fingerprint is None else fingerprint.split("/")[0]


def _sentence(name: str, versions: Sequence[str], found: Boundaries, verdicts: Mapping[str, str]) -> str:
    judged = [version for version in versions if verdicts.get(version) != ERROR]
    since = f"fails since {found.first_failing}" if found.first_failing else f"fails in {judged[0]} already"
    until = f"fixed in {found.first_fixed}" if found.first_fixed else f"not fixed up to {judged[-1]}"
    left_out = [version for version in versions if version not in judged]
    beside = f"; cannot run on {', '.join(left_out)}" if left_out else ""
    return f"{name}: {since}, {until}{beside}"
