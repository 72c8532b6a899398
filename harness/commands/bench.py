"""swarden bench: runs the benchmarks; each result is a ratio to a reference that is measured in the same run."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import typer

from swarden.harness.bench import (
    disaggregation,
    from_cold,
    generation,
    idle_host,
    pool_growth,
    shrinking,
    speculation,
    step_parts,
    strict_overhead,
)
from swarden.harness.bench.checked_step import CheckedStepCost, measure
from swarden.harness.bench.pool_growth import Growth
from swarden.harness.bench.strict_overhead import Overhead
from swarden.harness.commands.console import OUT, print_json, progress
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.target import prepare
from swarden.harness.search.process import prepare_process


class Benchmark(StrEnum):
    """A part of the benchmarks that can be measured alone."""

    STEP = "step"
    PARTS = "parts"
    STRICT = "strict"
    SHRINKING = "shrinking"
    COLD = "cold"
    GENERATION = "generation"
    HOST = "host"
    SPECULATION = "speculation"
    DISAGGREGATION = "disaggregation"


PARTS = f"only this part, can be given several times: {', '.join(Benchmark)}"


class Measured(NamedTuple):
    """The figures of one part for scripts, and as text; `wrong` has a line for each case of unequal outputs."""

    figures: dict[str, Any]
    text: str
    wrong: Sequence[str] = ()


def bench(
    *,
    part: Annotated[list[Benchmark] | None, typer.Option(help=PARTS, show_default=False)] = None,
    pairs: Annotated[int, typer.Option(min=1, help="measured pairs; the result is their median")] = 5,
    strict_seconds: Annotated[
        float, typer.Option(min=0.01, help="CPU seconds under each level of the strict check")
    ] = strict_overhead.CPU_SECONDS,
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
    if engine != OWN and set(part or ()) - {Benchmark.PARTS}:
        raise UsageError(f"--engine {engine}: only --part {Benchmark.PARTS} measures another engine; give only that")
    prepare_process()
    prepare(target_of(OWN))
    measures: dict[Benchmark, Callable[[], Measured]] = {
        Benchmark.STEP: lambda: _step(pairs),
        Benchmark.PARTS: lambda: _measured(step_parts, step_parts.measure(list(dict.fromkeys((OWN, engine))))),
        Benchmark.STRICT: lambda: _strict(pairs, strict_seconds),
        Benchmark.SHRINKING: lambda: _measured(shrinking, [shrinking.compare(one) for one in shrinking.MUTANTS]),
        Benchmark.COLD: lambda: _measured(from_cold, from_cold.measure()),
        Benchmark.GENERATION: lambda: _compared(generation, generation.race_all(rounds=pairs)),
        Benchmark.HOST: lambda: _host(pairs),
        Benchmark.SPECULATION: lambda: _compared(speculation, speculation.measure_all(rounds=pairs)),
        Benchmark.DISAGGREGATION: lambda: _compared(disaggregation, disaggregation.measure_all(rounds=pairs)),
    }
    measured = []
    with progress() as bar:
        for name in part or (Benchmark if engine == OWN else [Benchmark.PARTS]):
            bar.add_task(name)
            measured.append(measures[name]())
    wrong = [line for of_part in measured for line in of_part.wrong]
    if as_json:
        print_json({key: figure for of_part in measured for key, figure in of_part.figures.items()} | {"wrong": wrong})
    else:
        OUT.print("\n".join([*(of_part.text for of_part in measured), *wrong]), markup=False)
    raise typer.Exit(ExitCode.VIOLATED if wrong else ExitCode.CLEAN)


def _step(pairs: int) -> Measured:
    cost = measure(pairs)
    return Measured(figures(cost), _text(cost))


def _strict(pairs: int, seconds: float) -> Measured:
    overheads = strict_overhead.measure_all(cpu_seconds=seconds)
    growths = pool_growth.measure_all(pairs=pairs)
    return Measured(strict_figures(overheads, growths), _strict_text(overheads, growths))


def _host(pairs: int) -> Measured:
    cost = idle_host.measure(pairs=pairs)
    return Measured(
        {
            "idle_host_ratio": round(cost.ratio, 3),
            "idle_host_us": [round(cost.with_us, 1), round(cost.without_us, 1)],
        },
        f"steps per second with an idle host tier / without one: {cost.ratio:.2f} "
        f"({cost.with_us:.0f} us / {cost.without_us:.0f} us of CPU a step)",
    )


def _compared(part: ModuleType, results: Sequence[Any]) -> Measured:
    """The figures of a part that compares outputs, which must be equal."""
    name = part.__name__.rpartition(".")[2]
    wrong = [f"wrong: {name}, {one}; want equal outputs" for one in results if one.equal_outputs < part.REQUESTS]
    return _measured(part, results)._replace(wrong=wrong)


def _measured(part: ModuleType, results: Any) -> Measured:
    return Measured(part.figures(results), part.text(results))


def figures(cost: CheckedStepCost) -> dict[str, Any]:
    workload = cost.workload
    return {
        "checked_step_ratio": round(cost.ratio, 3),
        "invariants": cost.invariants,
        "units": cost.units,
        "checked_step_ratios": [round(ratio, 3) for ratio in cost.ratios],
        "checked_step_us": round(cost.checked_us, 1),
        "empty_step_us": round(cost.empty_us, 1),
        "workload": {
            "least_running": workload.least_running,
            "least_used": {name: round(share, 3) for name, share in workload.least_used.items()},
            "least_nodes": workload.least_nodes,
            "noop_share": round(workload.noop_share, 4),
        },
    }


def strict_figures(overheads: Sequence[Overhead], growths: Sequence[Growth]) -> dict[str, Any]:
    return {
        "strict_overhead": {one.level: round(one.share, 4) for one in overheads},
        "strict_us_per_step": {one.level: round(one.check_us, 1) for one in overheads},
        "strict_events_us": {one.level: round(one.events_us, 1) for one in overheads},
        "strict_step_us": {one.level: round(one.step_us, 1) for one in overheads},
        "census_ms_per_thousand_pages": next(
            (round(one.ms_per_thousand_pages, 3) for one in overheads if one.level == "census"), None
        ),
        "pool_growth_ratio": {one.level: round(one.ratio, 3) for one in growths},
        "pool_growth_us": {one.level: [round(one.small_us, 1), round(one.large_us, 1)] for one in growths},
    }


def _strict_text(overheads: Sequence[Overhead], growths: Sequence[Growth]) -> str:
    lines = [
        f"strict check, {one.level}: {one.share:.1%} of a step ({one.check_us:.0f} us of {one.step_us:.0f} us of CPU "
        f"over {one.steps} steps), {one.ms_per_thousand_pages:.3f} ms per 1,000 pages; the engine's "
        f"events took {one.events_us:.0f} us more"
        for one in overheads
    ]
    lines += [
        f"pools of {pool_growth.LARGE_PAGES} pages against {pool_growth.SMALL_PAGES}, strict check {one.level}: "
        f"{one.ratio:.2f} ({one.large_us:.0f} us / {one.small_us:.0f} us of CPU a step)"
        for one in growths
    ]
    return "\n".join(lines)


def _text(cost: CheckedStepCost) -> str:
    workload = cost.workload
    used = ", ".join(f"{name} {share:.0%}" for name, share in workload.least_used.items())
    return (
        f"checked engine step / step of an empty Hypothesis machine: {cost.ratio:.2f} "
        f"({cost.checked_us:.0f} us / {cost.empty_us:.0f} us of CPU; pairs "
        f"{', '.join(f'{ratio:.2f}' for ratio in cost.ratios)})\n"
        f"checked per step: {cost.invariants} invariants over {cost.units} units\n"
        f"workload at its least: {workload.least_running} running, pools used {used}, {workload.least_nodes} tree "
        f"nodes; {workload.noop_share:.1%} no-ops"
    )
