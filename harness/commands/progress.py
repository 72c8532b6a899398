"""The progress of a campaign, as a live text on standard error and as event lines."""

import time
from math import inf

from rich.progress import Progress

from swarden.harness.commands.console import ERR
from swarden.harness.commands.events import EventLines
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import Target
from swarden.harness.nightly.shards import runs_of_lanes
from swarden.harness.releases.gate_page import touched
from swarden.harness.report.wording import counted
from swarden.harness.search.campaign import Plan
from swarden.harness.search.gate import Gate
from swarden.harness.search.result import Finding, Result, Tallies
from swarden.harness.search.workers import WorkerGroup

SILENT_S = 5.0  # without a step, before a worker is shown as silent, or as loading its engine


class ProgressDisplay:
    """Shows the progress of a campaign while it runs."""

    def __init__(self, plan: Plan, bar: Progress, lines: EventLines) -> None:
        self._plan = plan
        self._bar = bar
        self._boot = f"starting {counted(plan.workers, 'worker')}: loading {plan.engine} (this can take a minute)"
        self._task = bar.add_task(self._boot)
        self._lines = lines
        self._written_runs = [0] * plan.workers
        self._shrunk: set[str] = set()  # fingerprints, printed in a pipe too

    def update(self, group: WorkerGroup) -> None:
        if not group.result.boots:
            if self._bar.disable and self._boot and time.monotonic() - group.started_at > SILENT_S:
                ERR.print(self._boot)
                self._boot = ""
            return
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
                ERR.print(f"{self._plan.engine}: {shrinking_line(finding)}, {of_all}")
        if not self._bar.disable:
            self._bar.update(self._task, description=self._text(group))

    def _text(self, group: WorkerGroup) -> str:
        result, silent = group.result, [(number, worker.silent_s) for number, worker in enumerate(group.workers)]
        lines = [
            f"{self._plan.engine}: {self._amount(group)}",
            found_line(result),
            reached_line(result, target_of(self._plan.engine)),
            *(f"worker {n} has been silent for {seconds:.0f} s" for n, seconds in silent if seconds > SILENT_S),
        ]
        return "\n".join(lines)

    def _amount(self, group: WorkerGroup) -> str:
        """The runs and the steps so far, and what is left."""
        tallies, passed_s = group.result.tallies, group.result.seconds or time.monotonic() - group.started_at
        text = (
            f"{counted(tallies.runs, 'run')}, {counted(tallies.steps, 'step')}, {tallies.steps / passed_s:.0f} a second"
        )
        if group.result.seconds:
            return f"{text}; shrinking findings"
        if self._plan.max_runs is not None:
            return f"{text}; {counted(self._plan.max_runs - tallies.runs, 'run')} left"
        left_s = self._plan.seconds - passed_s
        return f"{text}; {max(0, round(left_s))} s left" if left_s < inf else text


class GateDisplay:
    """Shows the phase of a gate, its new failures and the time that is left; without a terminal, a line for each."""

    def __init__(self, bar: Progress, lines: EventLines) -> None:
        self._bar, self._task, self._lines, self._phase = bar, bar.add_task(""), lines, ""
        self._ends: dict[str, str] = {}

    def update(self, gate: Gate) -> None:
        if gate.phase != self._phase:
            self._phase = gate.phase
            self._lines.write("phase", phase=gate.phase)
            if self._bar.disable:
                ERR.print(gate.phase)
        for name, judged in gate.judged.items():
            if self._ends.get(name) != judged.end:
                self._ends[name] = judged.end
                self._lines.write("judged", name=judged.name, on_base=judged.end, path=str(judged.finding.path))
                if judged.is_new:
                    near = touched(gate.plan.change, judged).lines[:1]
                    ERR.print("; ".join([f"new: {judged.name}: passes on the base", *map(str, near)]))
        time_left = f"; verdict in at most {gate.left_s:.0f} s" if gate.left_s < inf else ""
        self._bar.update(self._task, description=f"{gate.phase}{time_left}")


class NightDisplay:
    """Shows the phase of a night with its jobs; without a terminal, a line when a phase begins."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._task, self._line = bar, bar.add_task(""), ""

    def begin(self, line: str) -> None:
        self._line = line
        self._bar.reset(self._task, description=line)
        self._bar.start()
        if self._bar.disable:
            ERR.print(line)

    def update(self, ended: int) -> None:
        """Show the number of jobs of the phase that have ended, and the runs of this machine so far."""
        made = f"{counted(ended, 'job')} ended; {counted(runs_of_lanes(), 'run')} on this machine so far"
        self._bar.update(self._task, description=f"{self._line}\n{made}")


def found_line(result: Result) -> str:
    """The new failures with the name of the latest, and the runs that failed by known bugs."""
    tallies, fingerprints = result.tallies, [*result.findings]
    new = f"{counted(len(fingerprints), 'new failure')}" + (f", the latest {fingerprints[-1]}" if fingerprints else "")
    bugs = f" by {counted(len(tallies.known), 'known bug')}" if tallies.known else " by known bugs"
    return f"{new}; {counted(tallies.known.total(), 'run')} failed{bugs}"


def reached_line(result: Result, target: Target) -> str:
    """The rare states that are missing, and for how many runs nothing new has happened."""
    since = result.reached.runs_since_new
    plateau = f"nothing new in the last {counted(since, 'run')}" if since else ""
    return "; ".join(filter(None, (missing_probes(result.tallies, target), plateau)))


def shrinking_line(finding: Finding) -> str:
    return f"shrinking {finding.fingerprint}, found with {len(finding.log.ops)} ops"


def missing_probes(tallies: Tallies, target: Target) -> str:
    """The number of probes not reached yet, of the machines that ran, and the first of them; else the rarest probe."""
    ran = [name for machine, spec in target.machines.items() if tallies.machine_runs[machine] for name in spec.probes]
    missing = [name for name in ran if not tallies.probes[name]]
    if missing:
        return f"{counted(len(missing), 'rare state')} missing, such as {missing[0]}"
    return f"rarest state: {min(ran, key=tallies.probes.__getitem__)}" if ran else ""
