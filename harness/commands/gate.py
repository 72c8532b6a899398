"""swarden gate: a change of an engine, judged by its base, with the changed lines that each new failure touches."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from swarden.harness.commands.console import ERR, OUT, progress
from swarden.harness.commands.events import EventLines, EventsOption, event_lines
from swarden.harness.commands.help import limit_option
from swarden.harness.commands.mute import MutesOption
from swarden.harness.commands.progress import GateDisplay, ProgressDisplay
from swarden.harness.commands.servers import LAUNCH, launched
from swarden.harness.core.changed_code import difference
from swarden.harness.core.changes import import_root
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.files import write_whole
from swarden.harness.core.registry import installed
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.releases.commits import extract, links
from swarden.harness.releases.comparison import released
from swarden.harness.releases.gate_page import GatePage
from swarden.harness.search.campaign import Plan
from swarden.harness.search.gate import Gate, judged_by_base
from swarden.harness.search.mutes import MUTES, active, mutes_of
from swarden.harness.search.traffic.profiles import PROFILES
from swarden.harness.search.workers import WorkerGroup

GATE = Path(".swarden/gate")
HEAD, BASE = "checkout-head", "checkout-base"
SIDE = "a checkout of the engine, or a git revision of the checkout here"
Side = Annotated[str, typer.Option(help=SIDE, metavar="DIR|REVISION")]


def gate(
    *,
    base: Side,
    head: Side,
    engine: Annotated[str | None, typer.Option(help="the engine; recognised by its package")] = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="of traffic; the verdict is at most two later")] = 5.0,
    runs: Annotated[int | None, limit_option(min=1, help="stop the traffic after this many runs")] = None,
    workers: Annotated[int | None, limit_option(min=1, help="worker processes of the head; one per core")] = None,
    seed: Annotated[int, limit_option(min=0, help="seed of the traffic")] = 0,
    launch: Annotated[str | None, LAUNCH] = None,
    out: Annotated[Path, typer.Option(help="folder for the page and the op-logs", metavar="DIR")] = GATE,
    require_reach: Annotated[bool, typer.Option("--require-reach", help="fail if no changed line ran")] = False,
    mutes: MutesOption = MUTES,
    events: EventsOption = None,
) -> None:
    """Drive the head of a change with random traffic, and replay what fails on its base: what passes there is new.

    Nothing is installed for it but the packages that all releases of the engine share. The page, page.md below --out,
    has the story of each new failure behind the changed lines that it touches.

    The exit code is 1 if a failure is new, 2 if swarden cannot drive the head, 5 if a failure cannot be judged, or,
    with --require-reach, if no changed line ran.
    """
    out.mkdir(parents=True, exist_ok=True)
    aside = active(mutes_of(mutes))
    with linked(base, head, engine) as name, event_lines(events) as lines:
        old, new = released(f"{name}=={BASE}"), released(f"{name}=={HEAD}")
        old_root, new_root = import_root(old), import_root(new)
        assert old_root is not None, "a checkout has a folder"
        assert new_root is not None, "a checkout has a folder"
        ERR.print("comparing the head with its base")
        change = difference(old_root, new_root, new.code.package)
        _, line = launched(launch, [new.process])
        plan = Plan(engine=new.process, profile=PROFILES["default"], seed=seed, seconds=60 * minutes, max_runs=runs)
        plan = replace(plan, out=out, workers=workers or os.cpu_count() or 1, change=change.lines)
        plan = replace(plan, settings=line.settings, machine=line.machine, launch=line)
        done, why_broken = judged(plan, old.process, lines, change.renamed)
        page = GatePage(new, done, why_broken, aside)
        _write(page, out, new, new_root)
        for text in page.short_lines():
            OUT.print(text, soft_wrap=True)
    OUT.print(f"the page: {out / 'page.md'}", soft_wrap=True)
    is_missed = require_reach and not page.reach.is_reached
    raise typer.Exit(worst([page.code, ExitCode.RED if is_missed else ExitCode.CLEAN]))


def judged(plan: Plan, base: str, lines: EventLines, renamed: Mapping[str, str] = {}) -> tuple[Gate, Sequence[str]]:
    """A gate that has ended, and the reasons for which its head cannot be driven; shows the progress meanwhile."""
    with progress() as bar:
        campaign, display = ProgressDisplay(plan, bar, lines), GateDisplay(bar, lines)

        def show(gate: Gate, workers: WorkerGroup) -> None:
            if workers is gate.head:
                campaign.update(workers)
            display.update(gate)

        return judged_by_base(plan, base, show, renamed)


def _write(page: GatePage, out: Path, head: ReleasedTarget[Any], root: Path) -> None:
    """Write the page, and its annotations, whose paths are those in the repository of the engine."""
    place = (root / head.code.package).resolve().parent  # a checkout is linked
    folder = head.releases.sources if f"{place}/".endswith(f"/{head.releases.sources}") else ""
    for file, lines in (("page.md", page.lines()), ("annotations.txt", page.annotations(folder))):
        write_whole(out / file, "".join(f"{line}\n" for line in lines).encode())


# --- the two sides


@contextmanager
def linked(base: str, head: str, engine: str | None) -> Iterator[str]:
    """Link both sides for this process and those that it starts, until the body ends; yields the name of the engine.

    Each call has a folder of its own for the links and for what is extracted of a repository, which is removed.
    """
    with links() as folder:
        trees = {"--base": _tree_of("--base", base, head, folder), "--head": _tree_of("--head", head, base, folder)}
        target = _target_of(trees["--head"], engine)
        for option, version in (("--base", BASE), ("--head", HEAD)):
            target.releases.link(version, trees[option], folder, option=option)
        yield target.name


def _tree_of(option: str, side: str, other: str, folder: Path) -> Path:
    """A folder, or what the revision of that name has in the folder of the other side, or in the folder here."""
    if Path(side).is_dir():
        return Path(side)
    where, tree = Path(other if Path(other).is_dir() else "."), folder / option
    try:
        extract(where, side, tree)
    except UsageError as error:
        what = f"{side} is neither a folder nor a git revision in {where.resolve()}"
        raise UsageError(f"{option}: {what}; name one of them ({error})") from error
    return tree


def _target_of(head: Path, engine: str | None) -> ReleasedTarget[Any]:
    """The target of this name, else one whose package is in a folder: the package's namesake, if several drive it."""
    if engine is not None:
        return released(engine)
    drivable = []
    for name in installed():
        with suppress(UsageError):  # an engine that cannot be loaded, or has no releases
            drivable.append(released(name))
    matching = [target for target in drivable if target.releases.sources_in(head) is not None]
    if not matching:
        names = ", ".join(target.name for target in drivable)
        raise UsageError(f"--head: {head} is no checkout of {names}; name one, or the engine with --engine")
    return min(matching, key=lambda target: target.name != target.releases.package)
