"""swarden engines: which targets are here and in which versions; install, check, try or remove a release."""

import os
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from swarden.harness.commands.console import ERR, OUT, print_json, progress
from swarden.harness.commands.events import EventLines
from swarden.harness.commands.gate import judged
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.files import write_whole
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.registry import UnknownEngine, code_of, installed, target_of
from swarden.harness.core.releases import Releases, in_environment, parsed
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.nightly.replaying import smallest_logs
from swarden.harness.releases.comparison import compared, figures_of, lines_of, released, rows_of, table_lines
from swarden.harness.releases.gate_page import GatePage, KnownLogs, ends_on, logs_of_bugs
from swarden.harness.releases.reads import BREAKS
from swarden.harness.report.wording import counted
from swarden.harness.search.campaign import Plan
from swarden.harness.search.traffic.profiles import PROFILES

JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
LATEST = "latest"  # of the releases of the package index
TRIALS = Path(".swarden/trials")
NamedReleases = Annotated[list[str], typer.Argument(help="releases, as sglang==0.5.23", metavar="NAME==VERSION…")]
Against = Annotated[
    str | None, typer.Option(help="the release to compare it with; the newest older one that is installed")
]

engines = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The installed engines and their releases: list them, install or remove a release.",
)


@engines.command()
def check(
    name: Annotated[
        str, typer.Argument(help="a release that is installed, as sglang==0.5.23", metavar="NAME==VERSION")
    ],
    *,
    against: Against = None,
    table: Annotated[bool, typer.Option("--table", help="print what the adapter reads and wraps")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Compare what the adapter reads and wraps of a release with an older release; nothing is imported.

    The exit code is 5 if something that the adapter reads is missing, has moved, has another signature, or is unset.
    """
    target = released(name)
    comparison = compared(target, against)
    figures = figures_of(target, comparison)
    if as_json:
        print_json(figures | ({"table": rows_of(comparison.table)} if table else {}))
    else:
        for line in (*(table_lines(comparison) if table else ()), *lines_of(target, comparison)):
            OUT.print(line, soft_wrap=True)
    is_broken = any(difference.kind in BREAKS for difference in comparison.differences)
    raise typer.Exit(ExitCode.RED if is_broken else ExitCode.CLEAN)


@engines.callback(invoke_without_command=True)
def listing(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List the engines with their versions and releases, or the reason why an engine cannot be loaded."""
    if context.invoked_subcommand is not None:
        return
    rows = [_row(name, entry.value) for name, entry in installed().items()]
    if as_json:
        print_json({"engines": rows})
    for row in () if as_json else rows:
        for line in _lines(row):
            OUT.print(line)


@engines.command("list", hidden=True)
def list_again(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """The same as without a command."""
    context.invoked_subcommand = None
    listing(context, as_json=as_json)


@engines.command()
def install(
    names: NamedReleases,
    *,
    checkout: Annotated[
        Path | None, typer.Option("--from", help="link this checkout, as NAME==checkout-WORD", metavar="DIR")
    ] = None,
) -> None:
    """Install releases in directories of their own; no environment is changed.

    With --from nothing is copied: the sources of the checkout are used as they are at each run.
    """
    if checkout is not None:
        [name, *others] = names
        if others:
            raise UsageError(f"--from: {checkout} is one checkout; name it once, not also {', '.join(others)}")
        name, releases, version = _release(name)
        releases.link(version, checkout)
        OUT.print(f"{name} is {releases.checkout_of(version)}; use it with --engine {name}")
        return
    for name, releases, version in [_release(name) for name in names]:
        if install_release(name, releases, version):
            OUT.print(f"{name} is installed; use it with --engine {name}")
        else:
            OUT.print(f"{name} is already installed in {releases.root / version}")
        for package in releases.absent:
            line = f"{name} also needs {package} in this environment: pip install 'swarden[engine]'"
            ERR.print(line, soft_wrap=True)


def install_release(name: str, releases: Releases, version: str) -> bool:
    """Install a release if it is missing, and print what is downloaded; returns whether it was missing."""
    download = releases.download_for(version) if version not in releases.linked() else ""
    if download:
        ERR.print(f"{name}: downloads {download} into {releases.root}")
        with progress() as live:
            live.add_task("pip")
            left_out = releases.install(version)
        if left_out:
            ERR.print(f"{name}: {releases.beside} is left out: {left_out}", soft_wrap=True)
    return bool(download)


@engines.command("try")
def try_release(
    name: Annotated[str, typer.Argument(help="a release, or NAME==latest", metavar="NAME==VERSION")],
    *,
    against: Against = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="of traffic on the release; 2, or unlimited with --runs")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="limit of the runs")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="worker processes; one per core")] = None,
    archive: Annotated[Path | None, typer.Option(help="also replay the findings of this archive of nights")] = None,
    out: Annotated[Path, typer.Option(help="folder for the findings", metavar="DIR")] = TRIALS,
    page: Annotated[Path | None, typer.Option("--page", help="write the page here, not on standard output")] = None,
) -> None:
    """Install a release and the one before it, compare them, fuzz the release, and replay its failures on the other.

    The known op-logs are replayed on both. The page is Markdown, as that of a gate. The exit code is 2 if swarden
    cannot drive the release, 1 if something fails that passes on the older one, 5 if a failure cannot be judged.
    """
    name, releases, version = _release(name)
    target_name = name.partition("==")[0]
    install_release(name, releases, version)
    if against is None and all(parsed(other) >= parsed(version) for other in releases.installed()):
        against = max((other for other in releases.on_index() if parsed(other) < parsed(version)), key=parsed)
    if against is not None:
        install_release(f"{target_name}=={against}", releases, against)
    target, folder = released(name), out / slug(name)
    older = f"{target_name}=={compared(target, against).version}"
    folder.mkdir(parents=True, exist_ok=True)
    seconds = 60 * (minutes or (2.0 if runs is None else inf))
    plan = Plan(
        engine=name,
        profile=PROFILES["smoke"],
        seconds=seconds,
        max_runs=runs,
        out=folder,
        workers=workers or os.cpu_count() or 1,
    )
    done, why_broken = judged(plan, older, EventLines(None))
    known_logs = KnownLogs()
    if done.head.result.tallies.runs and not done.head.is_interrupted:
        known_logs = _known_logs(target, older, archive)
    result = GatePage(target, done, why_broken, logs=known_logs)
    text = "\n".join(result.lines()) + "\n"
    if page is None:
        OUT.print(text, soft_wrap=True, end="")
    else:
        write_whole(page, text.encode())
    raise typer.Exit(result.code)


def _known_logs(target: ReleasedTarget[Any], older: str, archive: Path | None) -> KnownLogs:
    """How the op-logs of the known bugs end on a release and on an older one, and those of an archive's findings."""
    errors: list[str] = []
    logs = logs_of_bugs(target) | (smallest_logs(archive, target.name, errors) if archive is not None else {})
    for error in errors:
        ERR.print(error)
    ends = []
    for engine in (older, target.process):
        ERR.print(f"{engine}: {counted(len(logs), 'known op-log')} to replay")
        ends.append(ends_on(engine, logs))
    return KnownLogs(*ends)


@engines.command()
def remove(names: NamedReleases) -> None:
    """Delete releases; with the last one of an engine, also the packages that its releases share."""
    for name, releases, version in [_release(name) for name in names]:
        releases.remove(version)
        OUT.print(f"{name} is removed")


def _release(text: str) -> tuple[str, Releases, str]:
    name, _, version = text.partition("==")
    releases = target_of(name).releases
    if releases is None:
        raise UsageError(f"{name}: its releases are not installed by swarden; use pip")
    if version == LATEST:
        version = releases.on_index()[-1]
        text = f"{name}=={version}"
    if not version:
        raise UsageError(
            f"{name}: which release? Want {name}==VERSION, or {name}=={LATEST}; "
            f"'pip index versions {releases.on_index_as}' has all"
        )
    return text, releases, version


def _row(name: str, place: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "target": place, "version": None, "why": None}
    try:
        target = target_of(name)
        with code_of(installed()[name]):
            row["version"] = target.version() or None
    except UnknownEngine as error:
        return row | {"why": str(error)}
    if target.releases is not None:
        here = in_environment(target.releases.package)
        row["in_environment"] = {"version": here.version, "folder": str(here.folder)} if here is not None else None
        row["releases"] = target.releases.installed()
        row["checkouts"] = {name: str(target.releases.checkout_of(name)) for name in target.releases.linked()}
    return row


def _lines(row: dict[str, Any]) -> list[str]:
    if row["why"] is not None:
        return [row["why"]]
    lines = [" ".join([row["name"], *filter(None, [row["version"]]), f"({row['target']})"])]
    if "releases" in row:
        if (here := row["in_environment"]) is not None:
            lines.append(f"  in this environment: {here['version']}, {here['folder']}")
        remedy = f"none; run: swarden engines install {row['name']}==VERSION"
        lines.append(f"  releases: {', '.join(row['releases']) or remedy}")
        for name, place in row["checkouts"].items():
            lines.append(f"  {name}: {place}" if Path(place).is_dir() else f"  {name}: its folder {place} is gone")
    return lines
