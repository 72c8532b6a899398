"""How a campaign ended: its verdict, and the figures for scripts."""

from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any

from harness.core.driver import STUCK
from harness.core.exit_codes import ExitCode, worst
from harness.core.mutant import Mutant
from harness.core.registry import target_of
from harness.core.target import Target
from harness.search.campaign import Plan, Result
from harness.search.deaths import FAULT
from harness.search.findings import Settled
from harness.search.floors import why_not_green

NOT_JUDGED = "not judged"
VERDICTS = {
    ExitCode.FAULT: "a fault of swarden itself",
    ExitCode.NONDETERMINISTIC: "not deterministic",
    ExitCode.VIOLATED: "violated",
    ExitCode.STUCK: "stuck",
    ExitCode.RED: "red",
    ExitCode.CLEAN: "green",
}


@dataclass(frozen=True)
class Outcome:
    """A campaign at its end; `command` is the line that runs it again, `not_shown` why findings were not settled.

    `mutant` is the bug that was planted, if any: then nothing is owed but that it is found.
    """

    plan: Plan
    command: str
    result: Result
    findings: list[Settled] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)
    mutant: Mutant | None = None
    is_interrupted: bool = False

    @property
    def target(self) -> Target:
        return target_of(self.plan.engine)

    @property
    def diverged(self) -> list[str]:
        return self.result.diverged + self.not_shown

    @property
    def exit_code(self) -> ExitCode:
        codes = [ExitCode.NONDETERMINISTIC] * bool(self.diverged) + [ExitCode.RED] * bool(self.owed)
        codes += [_code_of(finding) for finding in self.findings]
        return worst(codes)

    @property
    def verdict(self) -> str:
        if self.exit_code is ExitCode.CLEAN and self.why_not_judged:
            return NOT_JUDGED
        return VERDICTS[self.exit_code]

    @property
    def why_not_judged(self) -> str:
        """Why a campaign without violations is not green; empty where it is judged."""
        runs, want = self.result.tallies.runs, self.plan.profile.min_runs
        if self.is_interrupted:
            return "it was interrupted"
        if self.mutant is not None:
            return ""
        if self.plan.machine is not None:
            return f"only machine {self.plan.machine} ran"
        return f"{runs} runs, want at least {want} of profile {self.plan.profile.name}" if runs < want else ""

    @cached_property
    def owed(self) -> list[str]:
        """Why a campaign is red without a violation."""
        owed = list(self.result.mishaps)
        if self.mutant is not None:
            if not self.findings and not self.is_interrupted:
                owed.append(f"mutant {self.mutant.id}: missed by {', '.join(self.mutant.caught_by)}")
        elif not self.why_not_judged:
            owed += why_not_green(self.result.tallies, self.plan.profile, self.target)
        return owed

    @property
    def found(self) -> str:
        """What tells of the planted bug; empty where nothing was planted or found."""
        told = list(dict.fromkeys(name for finding in self.findings for name in finding.told_by))
        if self.mutant is None or not told:
            return ""
        listed = [name for name in told if name in self.mutant.caught_by]
        by = ", ".join(listed or told)
        return f"mutant {self.mutant.id}: found by {by}" + ("" if listed else ", which its list does not name")

    def summary(self) -> dict[str, Any]:
        """What scripts read; shares are from 0 to 1."""
        tallies, seconds = self.result.tallies, self.result.seconds
        names = sorted({*tallies.evaluated, *tallies.not_applicable})
        return {
            "version": version("swarden"),
            "engine": self.target.name,
            "engine_version": self.target.version(),
            "command": self.command,
            "seed": self.plan.seed,
            "profile": self.plan.profile.name,
            "workers": self.plan.workers,
            "verdict": self.verdict,
            "why_not_judged": self.why_not_judged,
            "interrupted": self.is_interrupted,
            "runs": tallies.runs,
            "steps": tallies.steps,
            "seconds": round(seconds, 3),
            "steps_per_second": round(tallies.steps / seconds, 1) if seconds else 0.0,
            "violations": tallies.failed_runs,
            "findings": [finding.figures() for finding in self.findings],
            "probes": dict(sorted(tallies.probes.items())),
            "checks": {
                name: {"evaluated": tallies.evaluated[name], "not_applicable": tallies.not_applicable[name]}
                for name in names
            },
            "noops": {name: round(tallies.noops[name] / count, 4) for name, count in sorted(tallies.ops.items())},
            "faults": {fault: tallies.fired[fault] for fault in self.target.faults},
            "owed": self.owed,
            "diverged": self.diverged,
        }

    def lines(self) -> list[str]:
        """The end of what a person reads: the verdict, what it rests on, and the figures in a line."""
        tallies, seconds = self.result.tallies, self.result.seconds
        verdict = f"{self.verdict} ({self.why_not_judged})" if self.verdict == NOT_JUDGED else self.verdict
        lines = [f"not deterministic: {place}" for place in self.diverged]
        lines += [f"red: {owed}" for owed in self.owed]
        lines += [self.found] if self.found else []
        rate = tallies.steps / seconds if seconds else 0.0
        return [
            *lines,
            f"{verdict}: {tallies.runs} runs, {tallies.steps} engine steps in {seconds:.0f} s "
            f"({rate:.0f} a second), {sum(tallies.evaluated.values())} checks, {tallies.rechecked} runs run twice, "
            f"{tallies.failed_runs} failed with {len(self.findings)} findings",
        ]


def _code_of(finding: Settled) -> ExitCode:
    """A run that took its process down and passes when it is repeated shows no fault of the engine by itself."""
    if finding.fingerprint.startswith(f"{FAULT}/"):
        return ExitCode.FAULT
    if not finding.is_confirmed:
        return ExitCode.RED
    return ExitCode.STUCK if finding.fingerprint == STUCK else ExitCode.VIOLATED
