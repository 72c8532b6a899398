"""swarden backtest: how many bugs of past releases a search finds before the next release fixes them."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from swarden.harness.commands.console import ERR, OUT
from swarden.harness.commands.engines import install_release
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import write_whole
from swarden.harness.core.registry import target_of
from swarden.harness.core.releases import Releases, parsed
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.releases.backtest import Backtest, adapter_hash
from swarden.harness.releases.backtest_results import Budget, Outcome, Pair, cost_of, judgement_of, pairs_in
from swarden.harness.releases.older_defaults import older_defaults
from swarden.harness.releases.reads import definitions_of
from swarden.harness.report import markdown
from swarden.harness.report.wording import counted
from swarden.harness.search.process import prepare_process

RESULTS = "backtest.json"
FOLDER = Path(".swarden/backtest")
CPU_MINUTES = 1.0


def backtest(
    engine: Annotated[str, typer.Argument(help="an engine with releases, as sglang")],
    *,
    oldest: Annotated[
        str | None, typer.Option("--from", help="the first release; the oldest that is installed")
    ] = None,
    newest: Annotated[str | None, typer.Option("--to", help="the last release; the newest that is installed")] = None,
    cpu_minutes: Annotated[
        float | None, typer.Option(min=0.01, help=f"CPU time of a search, {CPU_MINUTES:g}", metavar="MINUTES")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="end a search after so many runs, in any time: then it is deterministic")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="seed of the search; the next release has the two behind it, too")
    ] = 0,
    install: Annotated[
        bool, typer.Option("--install", help="install each missing release, and remove it after use")
    ] = False,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="only print the table of the results that ship with the engine")
    ] = False,
    out: Annotated[Path, typer.Option(help="folder of the logs and the results", metavar="DIR")] = FOLDER,
) -> None:
    """For each two successive releases: search the older one, freeze the findings, and replay them on the newer one.

    Releases between which no module that the adapter drives has changed count as one.  A backtest that was interrupted
    goes on from its files.  The table is printed as Markdown, and the results are in DIR/ENGINE/backtest.json.  With a
    finding that is still there on the newest release, and that no known bug explains, the exit code is 1.
    """
    releases = _releases_of(engine)
    if shipped:
        _print_table(engine, shipped_pairs(engine))
        return
    versions = _versions(releases, oldest, newest, install=install)
    prepare_process()
    test = Backtest(engine, out / engine, _budget(engine, seed, cpu_minutes, runs))
    limit = f"{cpu_minutes or CPU_MINUTES:g} CPU minutes" if runs is None else counted(runs, "run")
    searches = f"{len(versions) - 1} to {3 * len(versions) - 2} searches of {limit}"
    ERR.print(f"{engine} {versions[0]} to {versions[-1]}: {searches}; shrinking comes on top")
    pairs = []
    for pair in _pairs(test, releases, versions, install=install):
        pairs.append(pair)
        ERR.print(_line(pair), soft_wrap=True)
    content = msgspec.json.format(msgspec.json.encode(pairs)) + b"\n"
    write_whole(test.folder / RESULTS, content, inside=test.folder.parent)
    _print_table(engine, pairs)
    code, verdict = judgement_of(pairs)
    ERR.print(f"{engine} {versions[-1]}: {verdict}, by the findings that are still there")
    raise typer.Exit(code)


def shipped_pairs(engine: str) -> Sequence[Pair]:
    """The results that ship with an engine."""
    return pairs_in(Path(str(sys.modules[type(target_of(engine)).__module__].__file__)).with_name(RESULTS))


def _budget(engine: str, seed: int, cpu_minutes: float | None, runs: int | None) -> Budget:
    if runs is not None and cpu_minutes is not None:
        raise UsageError("--runs and --cpu-minutes: want one of them")
    cpu_seconds = 60 * (cpu_minutes or CPU_MINUTES) if runs is None else None
    return Budget(seed=seed, cpu_seconds=cpu_seconds, max_runs=runs, adapter=adapter_hash(engine))


def _print_table(engine: str, pairs: Sequence[Pair]) -> None:
    for line in table(engine, pairs):
        OUT.print(line, soft_wrap=True)


def table(engine: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """The results as a table in Markdown, with the sum of all pairs below it."""
    judged = [pair for pair in pairs if not pair.is_same]
    rows = [*(_row(pair.old, pair.new, [pair]) for pair in judged), _row("all", "", judged)]
    heads = [f"{engine} {head}" if head == "release" else head for head in rows[0]]
    yield from markdown.table(heads, [[*row.values()] for row in rows])
    num_found = sum(pair.count(Outcome.FOUND) for pair in judged)
    yield f"\n{engine}: {counted(num_found, 'bug')} found before the fix, in {counted(len(judged), 'pair')} of releases"


def _row(old: str, new: str, pairs: Sequence[Pair]) -> dict[str, str]:
    """The cells of a row, by the heads of the columns."""
    row = {"release": old, "next": new}
    for outcome in Outcome:
        row[outcome.value] = str(sum(pair.count(outcome) for pair in pairs))
        if outcome is Outcome.FOUND:
            row["of these known"] = str(sum(pair.count(outcome, is_known=True) for pair in pairs))
    cost = cost_of(pairs)
    return row | {"CPU seconds": f"{cost.cpu_seconds:.0f}", "ops": str(cost.ops)}


def _line(pair: Pair) -> str:
    if pair.is_same:
        return f"{pair.old} to {pair.new}: no module that is driven has changed"
    counts = ", ".join(f"{pair.count(outcome)} {outcome.value}" for outcome in Outcome if pair.count(outcome))
    cost = cost_of([pair])
    faults = f"; {counted(len(pair.faults), 'fault')} of the adapter" if pair.faults else ""
    return f"{pair.old} to {pair.new}: {counts or 'no finding'}, {cost.runs} runs, {cost.cpu_seconds:.0f} CPU s{faults}"


def _pairs(test: Backtest, releases: Releases, versions: Sequence[str], *, install: bool) -> Iterator[Pair]:
    """The pairs; the newer release of a pair is installed after the findings of the older one are frozen."""
    here = _Installed(test.engine, releases, can_install=install)
    old = versions[0]
    try:
        for new in versions[1:]:
            pair = test.pair(old, new)
            if pair is None:
                here.need(old)
                release = test.frozen(old, _digest(f"{test.engine}=={old}"))
                here.need(new)
                is_same = _digest(f"{test.engine}=={new}") == release.digest
                defaults = older_defaults(target_of(f"{test.engine}=={old}"), target_of(f"{test.engine}=={new}"))
                pair = test.same(old, new) if is_same else test.judged(release, new, defaults)
            yield pair
            old = old if pair.is_same else new
            here.remove_all_but(old)
    finally:
        here.remove_all_but()


@dataclass(frozen=True)
class _Installed:
    """The releases that were missing and have been installed; at most two at a time."""

    engine: str
    releases: Releases
    can_install: bool
    versions: list[str] = field(default_factory=list)

    def need(self, version: str) -> None:
        if self.can_install and install_release(f"{self.engine}=={version}", self.releases, version):
            self.versions.append(version)

    def remove_all_but(self, *needed: str) -> None:
        for version in [version for version in self.versions if version not in needed]:
            self.releases.remove(version)
            self.versions.remove(version)


def _digest(name: str) -> str:
    """The hash of the modules that the adapter drives; the version, for a target without a table of these."""
    target = target_of(name)
    return definitions_of(target).digest if isinstance(target, ReleasedTarget) else target.version()


def _releases_of(engine: str) -> Releases:
    releases = target_of(engine).releases
    if releases is None or "==" in engine:
        raise UsageError(
            f"{engine}: want the name of an engine with releases, without a version; see 'swarden engines'"
        )
    return releases


def _versions(releases: Releases, oldest: str | None, newest: str | None, *, install: bool) -> Sequence[str]:
    """The releases between the limits, oldest first: those that are installed, or all of the index."""
    installed = releases.installed()
    there = sorted({*installed, *(releases.on_index() if install else ())}, key=parsed)
    for option, version in (("--from", oldest), ("--to", newest)):
        if version is not None and version not in there:
            raise UsageError(
                f"{option} {version}: is not installed; installed are {', '.join(installed) or 'none'}; add --install"
            )
    ends = installed or there
    first, last = parsed(oldest or ends[0]), parsed(newest or ends[-1])
    between = [version for version in there if first <= parsed(version) <= last]
    if len(between) < 2:
        raise UsageError(
            f"{', '.join(between) or 'no release'}: want at least two releases; add --install, or widen --from and --to"
        )
    return between
