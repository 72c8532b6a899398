"""swarden mutants sample: a seeded sample of small changes of the engine's code, run under random traffic."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from swarden.harness.commands.console import ERR, OUT, print_json
from swarden.harness.core.imports import importing
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.mutants.generic.corpus import recorded
from swarden.harness.mutants.generic.results import Conditions, Results, Tried, summary
from swarden.harness.mutants.generic.trial import trials
from swarden.harness.search.process import prepare_process

ROOT = Path(__file__).resolve().parents[2]  # above the packages
RESULTS = Path(".swarden/mutations.jsonl")
FOLDERS = ("engine_under_test/pools", "engine_under_test/cache", "engine_under_test/scheduler")


def sample(
    folders: Annotated[
        list[str] | None, typer.Argument(help="folders of the engine; its pools, cache and scheduler by default")
    ] = None,
    *,
    count: Annotated[int, typer.Option(min=1, help="number of mutations")] = 300,
    seed: Annotated[int, typer.Option(help="seed of the sample and of the traffic")] = 1,
    runs: Annotated[int, typer.Option(min=1, help="random runs of whole engines; others are added")] = 150,
    seconds: Annotated[float, typer.Option(min=1, help="maximum CPU seconds per mutation")] = 20.0,
    workers: Annotated[int, typer.Option(min=1, help="worker processes")] = 2,
    out: Annotated[Path, typer.Option(help="file for the results; an interrupted sample continues there")] = RESULTS,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Change the engine's code in small ways, one at a time, and run recorded random traffic on each."""
    prepare_process()
    mutations = _generator().sample(ROOT, folders or FOLDERS, count=count, seed=seed)
    results = Results(out, Conditions(target_of(OWN).source_hash(), seed, runs, seconds))
    left = results.left(mutations)
    corpus = recorded(out.with_name(f"corpus-{target_of(OWN).source_hash()}-{seed}-{runs}"), runs=runs, seed=seed)
    if corpus.num_failed:
        ERR.print(f"{corpus.num_failed} runs fail without any change, and were skipped", markup=False)
    for number, trial in enumerate(trials(left, corpus.kept, seconds=seconds, workers=workers), start=1):
        tried = results.add(trial)
        ERR.print(f"{number} of {len(left)}: {_line(tried)}", markup=False)
    figures = summary(results.of(mutations))
    if as_json:
        print_json(figures)
    else:
        OUT.print(_text(figures), markup=False)


def _generator() -> ModuleType:
    """The module that needs cosmic-ray; raises UsageError if cosmic-ray is not installed."""
    with importing("mutants sample"):
        return import_module("swarden.harness.mutants.generic.generate")


def _line(tried: Tried) -> str:
    verdict = f"killed by {tried.killed_by}" if tried.killed_by else tried.equivalent or "survived"
    return f"{tried.id} {tried.path}:{tried.line} {tried.place}: {verdict}"


def _text(figures: dict[str, Any]) -> str:
    survivors = [
        f"{one['id']} {one['place']}\n" + "\n".join(f"    {line}" for line in one["diff"])
        for one in figures["survivors"]
    ]
    folders = [f"{folder}: {_counts(counts)}" for folder, counts in figures["folders"].items()]
    return "\n".join([*survivors, *folders, f"all: {_counts(figures)}"])


def _counts(counts: dict[str, Any]) -> str:
    return (
        f"{counts['mutations']} mutations, {counts['equivalent']} equivalent; "
        f"killed {counts['killed']}, survived {counts['survived']} ({counts['killed_share']:.1%})"
    )
