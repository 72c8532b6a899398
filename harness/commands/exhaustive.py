"""swarden fuzz --exhaustive: all sequences of ops up to a length, on a tiny engine."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

from swarden.harness.commands.console import ERR, OUT, print_json
from swarden.harness.commands.layout import print_lines
from swarden.harness.commands.progress import shrinking_line
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import STOPPING, ExitCode
from swarden.harness.core.oplog import Header
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import ENGINE, prepare
from swarden.harness.report.wording import counted
from swarden.harness.search.campaign import Plan
from swarden.harness.search.exhaustive import Exploration, ExploredEngine, ExploredLength, tiny_config
from swarden.harness.search.findings import Reporting, write_unshrunk
from swarden.harness.search.judgement import Judgement, code_of_failure, judged
from swarden.harness.search.process import prepare_process
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.traffic.draws import alphabet_of
from swarden.harness.search.traffic.profiles import SHRINK_CPU_SECONDS


@dataclass
class Explored:
    """The levels that were searched, of `depth` requested levels, and their findings, shrunk and written."""

    depth: int
    levels: list[ExploredLength] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    shrink_seconds: float = 0.0
    is_interrupted: bool = False

    @property
    def states(self) -> int:
        return sum(level.states for level in self.levels)

    @property
    def reached(self) -> int:
        """The length up to which every sequence of ops was tried."""
        return max((level.length for level in self.levels if level.share == 1), default=0)

    @property
    def judgement(self) -> Judgement:
        """As of a campaign; a search that ended early is not judged, unless no state was left."""
        codes = [code_of_failure(finding.fingerprint) for finding in self.findings if not finding.cause.bugs]
        codes += [ExitCode.INTERRUPTED] if self.is_interrupted else []
        is_done = self.reached == self.depth or (bool(self.levels) and self.levels[-1].is_last)
        return judged(codes, has_known=any(finding.cause.bugs for finding in self.findings), is_judged=is_done)

    def summary(self) -> dict[str, Any]:
        """The figures for scripts; shares are from 0 to 1."""
        return {
            "version": version("swarden"),
            "verdict": self.judgement.verdict,
            "interrupted": self.is_interrupted,
            "depth": self.depth,
            "reached": self.reached,
            "states": self.states,
            "pruned": sum(level.pruned for level in self.levels),
            "steps": sum(level.steps for level in self.levels),
            "seconds": round(self.seconds, 3),
            "states_per_second": round(self.states / self.seconds, 1) if self.seconds else 0.0,
            "levels": [
                {"ops": level.length, "states": level.states, "pruned": level.pruned, "share": round(level.share, 4)}
                for level in self.levels
            ],
            "findings": [finding.figures() for finding in self.findings],
        }

    def line(self) -> str:
        """The last line of the output."""
        pruned = sum(level.pruned for level in self.levels)
        verdict, new = self.judgement.verdict, [finding for finding in self.findings if not finding.cause.bugs]
        return (
            f"{verdict}: all sequences of up to {self.reached} of {self.depth} ops, {self.states} states in "
            f"{self.seconds:.0f} s ({self.states / max(self.seconds, 0.001):.0f} a second), {pruned} sequences pruned, "
            f"{counted(len(new), 'finding')}"
        )


def explore(plan: Plan, depth: int, ignored: Mapping[str, object], *, shrink_seconds: float, as_json: bool) -> ExitCode:
    """Search all sequences of up to `depth` ops, with the engine and machine of a plan, and print the outcome.

    `ignored` are options without an effect here, which must not be given.  Raises UsageError if one is given, or if the
    engine has no tiny configuration.
    """
    unused = {"--model": plan.model, "--runs": plan.max_runs, "--corpus": plan.corpus, **ignored}
    for option, value in unused.items():
        if value:
            raise UsageError(f"{option}: has no effect with --exhaustive, which explores one engine; leave it out")
    explored = _explored(plan, depth, shrink_seconds)
    if as_json:
        print_json(explored.summary())
    else:
        for finding in explored.findings:
            print_lines(OUT, finding.story)
            OUT.print("")
        OUT.print(explored.line())
    return explored.judgement.exit_code


def _explored(plan: Plan, depth: int, shrink_seconds: float) -> Explored:
    """Search; print each level; shrink and write the findings.  The first SIGINT or SIGTERM ends the search."""
    target, machine = target_of(plan.engine), plan.machine or ENGINE
    if target.machines[machine].roles:
        raise UsageError(f"--machine: {machine} links several engines; an exhaustive search drives one")
    config = tiny_config(target, plan.settings)
    configs, changes = [target.encode(config)], plan.changes._asdict()
    header = Header(engine=target.name, version=target.version(), machine=machine, configs=configs, **changes)
    subject = ExploredEngine(header, alphabet_of(target, machine, config))
    assert plan.out is not None, "a search has a folder for its findings"
    prepare_process()
    prepare(target)
    explored, start = Explored(depth), monotonic()
    ERR.print(
        f"exhaustive: {len(subject.alphabet)} ops, sequences of up to {depth}; findings are shrunk in at most "
        f"{shrink_seconds:g} s (--shrink-seconds)"
    )
    search = Exploration(subject, plan.workers, plan.seconds, plan.stop_on_first)

    def report(finding: Finding, out: Path) -> Finding:
        if finding.died:
            return write_unshrunk(finding, out, "the sequence kills the process of the engine")
        ERR.print(shrinking_line(finding))
        began = monotonic()
        until = began + shrink_seconds - explored.shrink_seconds
        budget = ShrinkBudget(cpu_seconds=SHRINK_CPU_SECONDS)
        reporting = Reporting(out, budget, is_stopped=lambda: search.is_interrupted or monotonic() > until)
        report = reporting.report(finding)
        explored.shrink_seconds += monotonic() - began
        return report

    for number in STOPPING:
        signal.signal(number, search.interrupt)
    with plan.changes.planted(target):
        for level in search.levels(depth):
            explored.levels.append(level)
            explored.seconds = monotonic() - start
            ERR.print(_level_line(level, explored.seconds))
            explored.findings += [report(finding, plan.out) for finding in level.findings]
    explored.is_interrupted = search.is_interrupted
    return explored


def _level_line(level: ExploredLength, seconds: float) -> str:
    part = "" if level.share == 1 else f" ({level.share:.0%} of the sequences, then the time was over)"
    return f"{level.length} ops: {level.states} new states, {level.pruned} pruned, after {seconds:.1f} s{part}"
