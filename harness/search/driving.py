"""Drives a campaign: a group of workers makes its runs, then shrinks and reports what was found."""

from collections.abc import Callable, Iterator

from swarden.harness.search.corpus import rarest_first, write
from swarden.harness.search.judge import base_of, beside
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.traffic.profiles import SHRINK_CPU_SECONDS
from swarden.harness.search.workers import WorkerGroup


def driving(
    outcome: Outcome, group: WorkerGroup, *, shrink_seconds: float, on_finding: Callable[[Finding], None]
) -> Iterator[None]:
    """Make the runs of a plan, then shrink all findings within `shrink_seconds`; completes the outcome.

    `on_finding` is called with each new finding.
    """
    plan = outcome.plan
    assert plan.out is not None, "a campaign has a folder for its findings"
    yield from group.running(plan)
    outcome.result = result = group.result
    if plan.keeps_runs and plan.corpus is not None:
        write(plan.corpus, rarest_first(result.rare), replaced=result.replayed)
    budget = ShrinkBudget(cpu_seconds=SHRINK_CPU_SECONDS)
    for finding in group.report_findings(plan.out, budget, seconds=shrink_seconds):
        if finding is not None and outcome.add(finding):
            on_finding(finding)
        yield
    if outcome.findings and (base := base_of(outcome.target)):
        yield from beside(outcome.findings, base, lambda: group.is_interrupted)
    outcome.is_interrupted = group.is_interrupted
