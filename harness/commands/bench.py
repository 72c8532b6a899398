"""swarden bench: runs the benchmarks; each result is a ratio to a reference that is measured in the same run."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from swarden.harness.bench import checked_step, from_cold, loaded_steps, serving, shrinking
from swarden.harness.bench.timing import Case
from swarden.harness.commands.console import OUT, print_json, progress
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.target import prepare
from swarden.harness.search.process import prepare_process


class Benchmark(StrEnum):
    """A part of the benchmarks that can be measured alone."""

    STEP = "step"
    PLACES = "parts"
    STRICT = "strict"
    SHRINKING = "shrinking"
    COLD = "cold"
    GENERATION = "generation"
    HOST = "host"
    SPECULATION = "speculation"
    DISAGGREGATION = "disaggregation"


PLACES = f"only this part, can be given several times: {', '.join(Benchmark)}"


def bench(
    *,
    part: Annotated[list[Benchmark] | None, typer.Option(help=PLACES, show_default=False)] = None,
    pairs: Annotated[int, typer.Option(min=1, help="measured pairs; the result is their median")] = 5,
    strict_seconds: Annotated[
        float, typer.Option(min=0.01, help="CPU seconds under each level of the strict check")
    ] = loaded_steps.LEVEL_SECONDS,
    engine: Annotated[
        str, typer.Option(help="an engine, NAME or NAME==VERSION: the parts of its checked step beside those of ours")
    ] = OWN,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Run the benchmarks: a checked engine step against a step of an empty Hypothesis machine, and its parts; the cost
    of the strict check; swarden's shrinker against that of Hypothesis; a search from a cold start against a machine
    written by hand with Hypothesis; generation against the continuous batching of
    transformers; steps with an idle host tier against steps without one; generation with prompt lookup against
    generation without; two engines linked over TCP against two linked within their process.

    Unequal outputs of two ways of generation that must agree are a violation.
    """
    target_of(engine).check_environment()
    if engine != OWN and set(part or ()) - {Benchmark.PLACES}:
        raise UsageError(f"--engine {engine}: only --part {Benchmark.PLACES} measures another engine; give only that")
    prepare_process()
    prepare(target_of(OWN))
    measures: dict[Benchmark, Callable[[], Iterable[Case]]] = {
        Benchmark.STEP: lambda: checked_step.measure(pairs=pairs),
        Benchmark.PLACES: lambda: checked_step.measure_parts(dict.fromkeys((OWN, engine))),
        Benchmark.STRICT: lambda: loaded_steps.measure_strict(pairs=pairs, cpu_seconds=strict_seconds),
        Benchmark.SHRINKING: lambda: map(shrinking.compare, shrinking.MUTANTS),
        Benchmark.COLD: from_cold.measure,
        Benchmark.GENERATION: lambda: serving.on_each_checkpoint(serving.measure_generation, pairs=pairs),
        Benchmark.HOST: lambda: loaded_steps.measure_host(pairs=pairs),
        Benchmark.SPECULATION: lambda: serving.on_each_checkpoint(serving.measure_speculation, pairs=pairs),
        Benchmark.DISAGGREGATION: lambda: serving.on_each_checkpoint(serving.measure_disaggregation, pairs=pairs),
    }
    cases: dict[str, list[Case]] = {}
    with progress() as bar:
        for name in part or (Benchmark if engine == OWN else [Benchmark.PLACES]):
            bar.add_task(name)
            cases[name] = list(measures[name]())
            for case in [] if as_json else cases[name]:
                OUT.print(str(case), markup=False)
    wrong = [f"wrong: {name}, {case}; want equal outputs" for name, of in cases.items() for case in of if case.is_wrong]
    if as_json:
        rows: dict[str, Any] = {name: {case.name: case.figures for case in of} for name, of in cases.items()}
        print_json(rows | {"wrong": wrong})
    elif wrong:
        OUT.print("\n".join(wrong), markup=False)
    raise typer.Exit(ExitCode.VIOLATED if wrong else ExitCode.CLEAN)
