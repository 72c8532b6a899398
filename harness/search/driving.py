"""Drives a campaign: workers make its runs, then shrink and report what was found."""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.corpus import rarest_first, write
from swarden.harness.search.findings import Reporting
from swarden.harness.search.judge import base_of, beside
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.process import same_draws
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.traffic.profiles import SHRINK_CPU_SECONDS
from swarden.harness.search.workers import WorkerGroup


class InProcess:
    """The workers of a campaign in this process: one, which no interrupt ends early."""

    is_interrupted = False

    def __init__(self) -> None:
        self.result = Result()

    def running(self, plan: Plan) -> Iterator[None]:
        with same_draws():
            self.result = Worker(plan, lambda _: None).work()
        yield

    def report_findings(self, out: Path, budget: ShrinkBudget, *, seconds: float) -> Iterator[Finding]:
        until = monotonic() + seconds
        reporting = Reporting(out, budget, is_stopped=lambda: monotonic() > until)
        for finding in self.result.findings.values():
            yield reporting.report(finding)


def driving(
    outcome: Outcome, group: WorkerGroup | InProcess, *, shrink_seconds: float, on_finding: Callable[[Finding], None]
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
