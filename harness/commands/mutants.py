"""swarden mutants: the catalogue of bugs, the time to find each planted bug, and the law that finds it."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from swarden.harness.commands.console import ERR, OUT, print_json, print_piece
from swarden.harness.commands.help import EngineOption, output_option
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.files import opened
from swarden.harness.core.mutant import Mutant
from swarden.harness.core.mutant_file import VARIABLE, check_mutant, mutant_of, mutants_of_environment
from swarden.harness.core.patch import StalePatch
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.target import Target
from swarden.harness.engines.own.mutants.catalog import BUGS
from swarden.harness.search.mutants.kill_matrix import data, matrix_of, page
from swarden.harness.search.mutants.searches import (
    FOUND_SHARE,
    Scope,
    Score,
    SearchOutcome,
    SearchResult,
    scores_of,
    searches,
)
from swarden.harness.search.mutants.unplanted import Bug, DetectedByTest

FINDINGS = Path(".swarden/mutants")
OPLOGS = Path("tests/quality/oplogs")
SEEDS_FILE = "seeds.jsonl"
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
CORPUS = typer.Option(exists=True, file_okay=False, help="folder of a healthy build's op-logs to run first")
FOLDER = output_option(help=f"folder for op-logs and {SEEDS_FILE}, a line per search", metavar="DIR")

mutants = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The catalogue of mutants: list them, plant and find them, or print the kill matrix.",
)


@mutants.callback(invoke_without_command=True)
def listing(context: typer.Context, engine: EngineOption = OWN, as_json: JsonOption = False) -> None:
    """List the bugs of the catalogue: the id, the status and the source of each.

    Options before a command are those of the command.
    """
    given = {"engine": engine, "as_json": as_json}
    context.default_map = dict.fromkeys(("list", "run", "matrix"), given)
    if context.invoked_subcommand is None:
        target = target_of(engine)
        listed = [{"id": bug.id, "status": _status(target, bug), "source": bug.source} for bug in _bugs(target)]
        if as_json:
            print_json({"mutants": listed})
        for bug in listed if not as_json else ():
            OUT.print("{id:4} {status}: {source}".format_map(bug))


@mutants.command("list", hidden=True)
def list_again(context: typer.Context, engine: EngineOption = OWN, as_json: JsonOption = False) -> None:
    """The same as without a command."""
    context.invoked_subcommand = None
    listing(context, engine, as_json)


@mutants.command()
def run(
    ids: Annotated[list[str] | None, typer.Argument(help="ids of mutants; all by default")] = None,
    *,
    own: Annotated[
        Path | None,
        typer.Option("--mutants", envvar=VARIABLE, help="a Python file with your mutants; without ids only these run"),
    ] = None,
    engine: EngineOption = OWN,
    seeds: Annotated[int, typer.Option(min=1, help="searches per mutant, each from another seed")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="CPU seconds of a search, and again of a shrink")] = 60.0,
    workers: Annotated[int, typer.Option(min=1, help="processes that share the searches")] = 1,
    corpus: Annotated[Path | None, CORPUS] = None,
    out: Annotated[Path, FOLDER] = FINDINGS,
    as_json: Annotated[bool, output_option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Plant each bug and search for it: found, found by another law or missed, and at what cost.

    A search starts cold, unless there is a corpus of earlier runs.

    The time of imports is not counted. A mutant is found if nine of ten seeds find it by a law of its caught_by.
    """
    if own is not None:
        os.environ[VARIABLE] = str(own)
    chosen = _chosen(target_of(engine), ids)
    scope = Scope(engine, seeds, seconds, out, corpus=corpus)
    results: list[SearchResult] = []
    codes: list[ExitCode] = []
    with _seeds_file(out) as add:
        ERR.print(f"{len(chosen) * seeds} searches, each for at most {seconds:g} s of CPU and as many to shrink")
        try:
            for search in searches(chosen, scope, workers=workers):
                results.append(search)
                add(search)
        except KeyboardInterrupt:
            codes.append(ExitCode.INTERRUPTED)
            ERR.print(f"interrupted after {len(results)} of {len(chosen) * seeds} searches; the others are discarded")
        finally:  # finished searches are printed after any error, too
            scores = scores_of(chosen, seeds, results)
            if as_json:
                print_json({"mutants": [score.figures() for score in scores]})
            else:
                _print_scores(scores)
    raise typer.Exit(worst([*codes, *(ExitCode.RED for score in scores if not score.is_found)]))


@mutants.command()
def matrix(
    *,
    oplogs: Annotated[Path, typer.Option(help="folder with the op-log of each mutant, ID.oplog")] = OPLOGS,
    engine: EngineOption = OWN,
    as_json: JsonOption = False,
) -> None:
    """Print the page of the kill matrix: which invariant detects which bug, from replays of the bugs' op-logs."""
    kills = matrix_of(_bugs(target_of(engine)), oplogs, engine)
    print_piece(data(kills) if as_json else page(kills))


def _bugs(target: Target) -> Sequence[Bug]:
    return BUGS if target.name == OWN else target.catalog


def _status(target: Target, bug: Bug) -> str:
    """The status of a bug in this target; only mutants of a release are compared with its code, which imports it."""
    if isinstance(bug, Mutant):
        if target.releases is not None:
            try:
                check_mutant(target, bug)
            except StalePatch:
                return f"does not fit {target.version()}"
        return "planted"
    return "detected by a test only" if isinstance(bug, DetectedByTest) else "excluded by design"


def _chosen(target: Target, ids: list[str] | None) -> list[Mutant]:
    """The mutants to search for, each once: by id, or all of the user's file, or of the target if there is no file.

    Raises UsageError for a mutant that cannot be planted, before any search begins.  A mutant of the target that does
    not fit this release is left out, unless it is named.
    """
    own = mutants_of_environment(target)
    by_id = own or {mutant.id: mutant for mutant in target.catalog}
    may_leave_out = not ids and not own and target.releases is not None
    chosen = []
    for mutant in [mutant_of(target, name) for name in dict.fromkeys(ids or by_id)]:
        try:
            check_mutant(target, mutant)
        except StalePatch as error:
            if not may_leave_out:
                raise
            ERR.print(f"left out in {target.version()}: {error}")
            continue
        if mutant.overlooks is not None:
            mutant_of(target, mutant.overlooks.id)
        chosen.append(mutant)
    if not chosen:
        raise UsageError(f"{target.name} {target.version()}: no mutant fits it; give some with --mutants")
    return chosen


@contextmanager
def _seeds_file(out: Path) -> Iterator[Callable[[SearchResult], None]]:
    """Yields a function that appends a result to the file and prints it; raises UsageError if it cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = opened(out / SEEDS_FILE, "ab", inside=out)
    except OSError as error:
        raise _unwritable(out, error) from error

    def add(result: SearchResult) -> None:
        try:
            file.write(msgspec.json.encode(result) + b"\n")
        except OSError as error:
            raise _unwritable(out, error) from error
        if ERR.is_terminal:
            ERR.print(_progress(result))

    with file:
        yield add


def _unwritable(out: Path, error: OSError) -> UsageError:
    return UsageError(f"--out: {out} cannot be written: {error.strerror}; name another folder")


def _progress(result: SearchResult) -> str:
    law = f" ({result.law})" if result.law else ""
    cost = f"{result.runs} runs, {result.search_cpu_seconds:g} s of CPU"
    return f"{result.mutant} seed {result.seed}: {result.outcome}{law} after {cost}"


def _print_scores(scores: Sequence[Score]) -> None:
    """Print the table, a replay command for each bug found by another law, and the reasons for the exit code of red."""
    OUT.print(_table(scores))
    prefix = f"{VARIABLE}={os.environ[VARIABLE]} " if VARIABLE in os.environ else ""
    for score in scores:
        for result in score.of(SearchOutcome.BY_ANOTHER):
            again = f"replay: {prefix}swarden replay {result.path}" if result.path else "no op-log"
            line = f"{result.mutant} seed {result.seed}: {result.outcome}: {result.law}; {again}"
            OUT.print(line, soft_wrap=True)
    for score in scores:
        if not score.is_found:
            listed = ", ".join(score.mutant.caught_by)
            want = f"want {FOUND_SHARE:.0%} of the seeds to find it by {listed}"
            OUT.print(f"red: {score.mutant.id}: {score}; {want}")


def _table(scores: Sequence[Score]) -> Table:
    """The runs and CPU seconds of all searches, then the medians over the searches that found the bug."""
    medians = ("found_cpu_seconds", "shrink_cpu_seconds", "ops", "engine_steps")
    table = Table("mutant", "", "by", "runs", "CPU s", "found, CPU s", "shrunk, CPU s", "ops", "steps")
    for score in scores:
        figures = score.figures()
        cells = ["-" if figures[name] is None else f"{figures[name]:g}" for name in medians]
        spent = (str(figures["runs"]), f"{figures['cpu_seconds']:g}")
        table.add_row(score.mutant.id, str(score), score.law or "-", *spent, *cells)
    return table
