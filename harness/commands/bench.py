"""swarden bench: what a checked step costs, and what the strict check adds to a step."""

from enum import StrEnum
from typing import Annotated

import typer

from swarden.harness.bench import checked_step, loaded_steps
from swarden.harness.commands.console import OUT, print_json, progress
from swarden.harness.core.errors import UsageError
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.target import prepare
from swarden.harness.search.process import prepare_process


class Benchmark(StrEnum):
    """A benchmark that can be run alone."""

    PARTS = "parts"
    STRICT = "strict"


def bench(
    *,
    part: Annotated[
        list[Benchmark] | None,
        typer.Option(help=f"only this one, can be given several times: {', '.join(Benchmark)}", show_default=False),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="an engine, NAME or NAME==VERSION: the parts of its checked step beside those of ours")
    ] = OWN,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Run the benchmarks: the parts of a checked engine step, and what each level of the strict check adds to a step of
    swarden's own engine.
    """
    target_of(engine).check_environment()
    if engine != OWN and Benchmark.STRICT in (part or ()):
        raise UsageError(f"--engine {engine}: only --part {Benchmark.PARTS} measures another engine; give only that")
    prepare_process()
    prepare(target_of(OWN))
    cases = {
        Benchmark.PARTS: checked_step.measure(dict.fromkeys((OWN, engine))),
        Benchmark.STRICT: loaded_steps.measure(),
    }
    figures: dict[str, dict[str, object]] = {}
    with progress() as bar:
        for name in part or (Benchmark if engine == OWN else [Benchmark.PARTS]):
            bar.add_task(name)
            figures[name] = {}
            for case in cases[name]:
                figures[name][case.name] = case.figures
                if not as_json:
                    OUT.print(str(case))
    if as_json:
        print_json(figures)
