"""swarden bench: the benchmarks, as ratios against a reference of the same run."""

from typing import Annotated, Any

import typer

from harness.bench.checked_step import CheckedStepCost, measure
from harness.commands.console import OUT, print_json, progress
from harness.process import prepare_process


def bench(
    *,
    pairs: Annotated[int, typer.Option(min=1, help="measured pairs; the median counts")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """What a checked engine step costs, in steps of an empty Hypothesis machine."""
    prepare_process()
    with progress() as bar:
        bar.add_task("checked engine step against an empty machine")
        cost = measure(pairs)
    if as_json:
        print_json(figures(cost))
    else:
        OUT.print(_text(cost), markup=False)


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
