"""swarden bisect: the first version of an engine that an op-log fails on, and the first on which it no longer does."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from harness.commands.console import ERR, OUT, print_json
from harness.commands.replay import figures_of_replay
from harness.core.errors import UsageError
from harness.core.exit_codes import ExitCode
from harness.core.oplog import OpLog
from harness.core.registry import target_of

FAILED = "FAILED"


class Boundaries(NamedTuple):
    """`first_failing` is the oldest of the failing versions around the known one, `first_fixed` the version after them.

    None means that the failure is older than all versions, or that no version fixes it.
    """

    first_failing: str | None
    first_fixed: str | None


def bisect(
    path: Annotated[Path, typer.Argument(help="an op-log that fails")],
    *,
    engine: Annotated[str | None, typer.Option(help="the engine; by default that of the op-log")] = None,
    oldest: Annotated[str | None, typer.Option("--from", help="oldest version; by default of all installed")] = None,
    newest: Annotated[str | None, typer.Option("--to", help="newest version; by default of all installed")] = None,
    every: Annotated[bool, typer.Option("--all", help="replay on each version, also where not needed")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object on standard output")] = False,
) -> None:
    """Replay an op-log on the installed versions of its engine, each in a process of its own.

    A version fails if the same law is violated or the same error is raised, wherever its code is. The search assumes
    that the failing versions are consecutive; --all checks that.
    """
    header = OpLog.load(path).header
    name, known = engine or header.engine, header.version
    versions = _range(name, oldest, newest)
    if known not in versions:
        raise UsageError(f"{path}: is for {name} {known}, want that version among {', '.join(versions)}")
    replays: dict[str, dict[str, Any]] = {}

    def fails(version: str) -> bool:
        if version not in replays:
            replays[version] = _replayed(path, f"{name}=={version}")
            ERR.print(f"{version}: {_verdict(replays[version])}", markup=False)
        figures = replays[version]
        return figures["verdict"] == FAILED or _law_of(header.expected) in map(_law_of, figures.get("fingerprints", ()))

    if not fails(known):
        raise UsageError(f"{path}: {_verdict(replays[known])} on {known}; want a log that fails there")
    if every:
        list(map(fails, versions))
    found = boundaries(versions, known, fails)
    if as_json:
        verdicts = {version: replays[version]["verdict"] for version in versions if version in replays}
        print_json({"engine": name, "path": str(path), "verdicts": verdicts, **found._asdict()})
    else:
        OUT.print(_sentence(name, versions, found), markup=False)
    raise typer.Exit(ExitCode.CLEAN)


def boundaries(versions: Sequence[str], failing: str, fails: Callable[[str], bool]) -> Boundaries:
    """Search both ways from a version that fails; calls `fails` O(log n) times."""
    known = versions.index(failing)
    low, first = -1, known  # versions[low] passes, versions[first] fails
    while first - low > 1:
        middle = (low + first) // 2
        low, first = (low, middle) if fails(versions[middle]) else (middle, first)
    last, high = known, len(versions)  # versions[last] fails, versions[high] passes
    while high - last > 1:
        middle = (last + high) // 2
        last, high = (middle, high) if fails(versions[middle]) else (last, middle)
    return Boundaries(versions[first] if first else None, versions[high] if high < len(versions) else None)


def _range(name: str, oldest: str | None, newest: str | None) -> list[str]:
    releases = target_of(name).releases
    if releases is None:
        raise UsageError(f"{name}: has no versions that are installed side by side; see 'swarden engines'")
    versions = releases.installed()
    for option, version in (("--from", oldest), ("--to", newest)):
        if version is not None and version not in versions:
            there, remedy = ", ".join(versions) or "none", f"run: swarden engines install {name}=={version}"
            raise UsageError(f"{option} {version}: is not installed, but {there}; {remedy}")
    first = versions.index(oldest) if oldest is not None else 0
    last = versions.index(newest) if newest is not None else len(versions) - 1
    if last < first:
        raise UsageError(f"--from {oldest} is newer than --to {newest}; exchange them")
    return versions[first : last + 1]


def _replayed(path: Path, engine: str) -> dict[str, Any]:
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as process:
        return process.submit(figures_of_replay, path, engine).result()


def _verdict(figures: dict[str, Any]) -> str:
    """The verdict with its reason. ERROR is mostly a configuration that the version does not support."""
    return f"{figures['verdict']} {figures.get('why') or figures.get('fingerprint') or ''}".rstrip()


def _law_of(fingerprint: str | None) -> str | None:
    """The invariant or error that a fingerprint names first."""
    return None if fingerprint is None else fingerprint.split("/")[0]


def _sentence(name: str, versions: Sequence[str], found: Boundaries) -> str:
    since = f"fails since {found.first_failing}" if found.first_failing else f"fails in {versions[0]} already"
    until = f"fixed in {found.first_fixed}" if found.first_fixed else f"not fixed up to {versions[-1]}"
    return f"{name}: {since}, {until}"
