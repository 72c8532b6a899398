"""The progress of a campaign, as a live text on standard error and as event lines."""

import time

from rich.progress import Progress

from swarden.harness.commands.console import ERR
from swarden.harness.commands.events import EventLines
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import Target
from swarden.harness.report.wording import counted
from swarden.harness.search.campaign import Plan
from swarden.harness.search.result import Finding, Tallies
from swarden.harness.search.workers import WorkerGroup

SILENT_S = 5.0  # without a step, before a worker is shown as silent


class ProgressDisplay:
    """Shows the progress of a campaign while it runs."""

    def __init__(self, plan: Plan, bar: Progress, lines: EventLines) -> None:
        self._plan = plan
        self._bar = bar
        self._task = bar.add_task(f"{plan.engine}: starting the workers")
        self._lines = lines
        self._written_runs = [0] * plan.workers
        self._shrunk: set[str] = set()  # fingerprints, printed in a pipe too

    def update(self, group: WorkerGroup) -> None:
        for index, tallies in enumerate(group.tallies):
            if tallies.runs > self._written_runs[index]:
                self._written_runs[index] = tallies.runs
                self._lines.write(
                    "progress",
                    engine=self._plan.engine,
                    worker=index,
                    runs=tallies.runs,
                    steps=tallies.steps,
                    failed_runs=tallies.failed_runs,
                )
        for finding in group.shrinking:
            if finding.fingerprint not in self._shrunk:
                self._shrunk.add(finding.fingerprint)
                of_all = f"{len(self._shrunk)} of {len(group.result.findings)}"
                ERR.print(f"{self._plan.engine}: {shrinking_line(finding)}, {of_all}", markup=False)
        if not self._bar.disable:
            self._bar.update(self._task, description=self._text(group))

    def _text(self, group: WorkerGroup) -> str:
        tallies = group.result.tallies
        left_s = self._plan.seconds - (time.monotonic() - group.started_at)
        workers = ", ".join(
            f"{one.runs}" + (f" (silent for {worker.silent_s:.0f} s)" if worker.silent_s > SILENT_S else "")
            for one, worker in zip(group.tallies, group.workers, strict=True)
        )
        parts = [
            f"{self._plan.engine}: {tallies.runs} runs (by worker: {workers}), {tallies.steps} steps",
            counted(len(group.result.findings), "finding"),
        ]
        if group.result.seconds:
            parts.append("shrinking findings")
        elif self._plan.max_runs is not None:
            parts.append(f"{self._plan.max_runs - tallies.runs} runs left")
        elif left_s < float("inf"):
            parts.append(f"{max(0, round(left_s))} s left")
        return "  ".join([*parts, missing_probes(tallies, target_of(self._plan.engine))])


def shrinking_line(finding: Finding) -> str:
    return f"shrinking {finding.fingerprint}, found with {len(finding.log.ops)} ops"


def missing_probes(tallies: Tallies, target: Target) -> str:
    """The number of probes not reached yet, of the machines that ran, and the first of them; else the rarest probe."""
    ran = [name for machine, spec in target.machines.items() if tallies.machine_runs[machine] for name in spec.probes]
    missing = [name for name in ran if not tallies.probes[name]]
    if missing:
        return f"{len(missing)} probes missing: {missing[0]}"
    return f"rarest probe: {min(ran, key=tallies.probes.__getitem__)}" if ran else ""
