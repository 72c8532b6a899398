"""The outcome of a campaign: its verdict, the least coverage of a green one, and the figures for scripts."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from typing import Any

from swarden.harness.core.exit_codes import ExitCode
from swarden.harness.core.mutant import Mutant
from swarden.harness.core.mutant_file import mutant_of
from swarden.harness.core.printable import printable
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import Target
from swarden.harness.report.vulnerability import WARNING, may_be_vulnerability
from swarden.harness.report.wording import counted
from swarden.harness.search.campaign import Plan
from swarden.harness.search.fixed_settings import most_frequent
from swarden.harness.search.judgement import NOT_JUDGED, ONLY_KNOWN, VERDICTS, Judgement, code_of_failure, judged
from swarden.harness.search.keys import kind_of
from swarden.harness.search.mutes import Mute, active, mute_of
from swarden.harness.search.result import Finding, Result, Tallies
from swarden.harness.search.traffic.profiles import MAX_NOOP_SHARE, MIN_OCCURRENCES, PROFILES, Profile
from swarden.harness.search.verification import bugs_in, known_lines, muted_by, times, upstream_of
from swarden.invariants.catalog import catalog_of

PLATEAU_SHARE = 0.1  # of the runs of a campaign: if the last ones reach nothing new, more of them hardly will
SHORTEST_BOOT_S = 0.1  # a shorter boot is not printed


@dataclass
class Outcome:
    """A campaign and its end; `command` runs it again, `not_reproduced` names the findings that did not fail again.

    With a planted bug, missing coverage is not counted, and the campaign is red if it has no finding.
    """

    plan: Plan
    command: str
    result: Result = field(default_factory=Result)
    findings: list[Finding] = field(default_factory=list)
    not_reproduced: list[str] = field(default_factory=list)
    is_interrupted: bool = False
    mutes: Mapping[str, Mute] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        return target_of(self.plan.engine)

    @cached_property
    def mutant(self) -> Mutant | None:
        return mutant_of(self.target, self.plan.mutant) if self.plan.mutant is not None else None

    def add(self, report: Finding) -> bool:
        """Add the report of a finding; returns whether it is a new finding.

        If the shrunk log of an earlier finding fails at the same statements, that one has the runs of both.
        """
        tallies, at = self.result.tallies, (report.fingerprint, report.statements)
        same = [old for old in self.findings if report.statements and (old.fingerprint, old.statements) == at]
        if report.cause.bugs:
            tallies.attribute(report.fingerprint, report.cause.name)
        elif report.why_flaky:
            self.not_reproduced.append(report.why_flaky)
        elif same:
            kind = kind_of(report.fingerprint, same[0].key)
            tallies.kinds[kind] += tallies.runs_of(report, (same[0], report))
        else:
            self.findings.append(report)
            return True
        return False

    @property
    def diverged(self) -> list[str]:
        """The runs and the findings that ended differently when they were repeated."""
        return self.result.diverged + self.not_reproduced

    @property
    def judgement(self) -> Judgement:
        codes = [ExitCode.NONDETERMINISTIC] * bool(self.diverged) + [ExitCode.RED] * bool(self.owed)
        codes += [ExitCode.MISUSE] * bool(self.result.target_faults)
        open_ones = [finding for finding in self.findings if not self.muted(finding)]
        codes += [_code_of(finding) for finding in open_ones] + [ExitCode.INTERRUPTED] * self.is_interrupted
        has_known = bool(self.result.tallies.known) or len(open_ones) < len(self.findings)
        return judged(codes, has_known=has_known, is_judged=not self.why_not_judged)

    @cached_property
    def active(self) -> Mapping[str, Mute]:
        return active(self.mutes)

    def muted(self, finding: Finding) -> Mute | None:
        return mute_of(self.active, finding.name, finding.fingerprint)

    @property
    def verdict(self) -> str:
        return self.judgement.verdict

    @property
    def why_not_judged(self) -> str:
        """Why a campaign without violations is not green; empty if the campaign is judged."""
        runs, want = self.result.tallies.runs, self.plan.profile.min_runs
        if self.is_interrupted:
            return "it was interrupted"
        if self.mutant is not None:
            return ""
        return f"{runs} runs, want at least {want} of profile {self.plan.profile.name}" if runs < want else ""

    @cached_property
    def owed(self) -> list[str]:
        """The reasons for which a campaign without a violation is red."""
        reasons = [*self.result.unexplained_deaths, *filter(None, [self.result.gone])]
        if self.mutant is not None:
            if not self.findings and not self.is_interrupted:
                reasons.append(f"mutant {self.mutant.id}: missed by {', '.join(self.mutant.caught_by)}")
        elif not self.why_not_judged:
            reasons += missing_coverage(self.result.tallies, self.plan.profile, self.target, is_held=self.is_held)
        return reasons

    @property
    def is_held(self) -> bool:
        """Whether the campaign has only one machine, as with fixed settings, and so cannot cover everything."""
        return self.plan.machine is not None

    @property
    def never_due(self) -> list[str]:
        """The laws whose events never came, and for which a campaign of some length is not red."""
        tallies = self.result.tallies
        is_red = not self.is_held and not self.why_not_judged and self.plan.profile.must_evaluate
        if self.mutant is not None or is_red or tallies.runs < PROFILES["smoke"].min_runs:
            return []
        return never_due(tallies, self.target)

    @property
    def found(self) -> str:
        """The line with the laws that found the planted bug; "" if no bug was planted or found."""
        laws = list(dict.fromkeys(name for finding in self.findings for name in finding.laws))
        if self.mutant is None or not laws:
            return ""
        listed = [name for name in laws if name in self.mutant.caught_by]
        by = ", ".join(listed or laws)
        return f"mutant {self.mutant.id}: found by {by}" + ("" if listed else ", which is not in its caught_by")

    @property
    def causes(self) -> list[str]:
        """A line for each new finding, unless a bug is planted, for each known bug, and for what is muted."""
        tallies = self.result.tallies
        lines = []
        ended = [name for name in self.mutes if name not in self.active]
        muted = [f"the mute has ended: {printable(name)} {self.mutes[name]}" for name in ended]
        for finding in self.findings if self.mutant is None else ():
            mute, count = self.muted(finding), times(tallies.runs_of(finding, self.findings))
            if mute is not None:
                muted.append(f"muted: {finding.name}{count} {mute}")
                continue
            lines.append(f"new: {finding.name}{count}{', '.join(['', *self._remarks(finding)])}")
            if may_be_vulnerability(finding.fingerprints, finding.log.ops):
                lines.append(WARNING)
        releases = self.target.releases
        if lines and releases is not None and releases.num_embargoed:
            hidden = f"{counted(releases.num_embargoed, 'finding')} of {self.target.name} under embargo"
            lines.append(f"{hidden}: before you publish a new one, see SECURITY.md")
        known = Counter(tallies.known)
        for cause, runs in tallies.known.items():
            if (mute := muted_by(cause, self.active)) is not None:
                muted.append(f"muted: {cause}{times(runs)} {mute}")
                del known[cause]
        lines += [*known_lines(known, self.target), *muted]
        num_known, num_failed = tallies.known.total(), tallies.failed_runs
        if num_known > num_failed / 2 and not self.plan.fixes and self.target.is_repeatable:
            lines.append(
                f"{num_known} of {num_failed} failed runs are of known bugs: --with-fix all searches behind them"
            )
        return lines

    def _remarks(self, finding: Finding) -> Iterator[str]:
        """How a finding ends on the base, which known bugs have its name, and its place if others have its name."""
        if finding.on_base:
            yield finding.on_base
        if named := "; ".join(f"{name} ({why})" for name, why in finding.cause.namesakes.items()):
            yield f"no fix cures it; same name as {named}"
        if [other.fingerprint for other in self.findings].count(finding.fingerprint) > 1:
            yield f"at {'; '.join(sorted(finding.statements or finding.key))}"

    def _figures(self, finding: Finding) -> dict[str, Any]:
        return {
            "runs": self.result.tallies.runs_of(finding, self.findings),
            "muted": str(self.muted(finding) or "") or None,
            "not_verified": dict(finding.cause.namesakes),
            "on_base": finding.on_base or None,
        }

    def summary(self) -> dict[str, Any]:
        """The figures for scripts; shares are from 0 to 1."""
        tallies, seconds, refused = self.result.tallies, self.result.seconds, self.result.refused
        names = sorted({*tallies.evaluated, *tallies.not_applicable})
        return {
            "version": version("swarden"),
            "engine": self.target.name,
            "engine_version": self.target.version(),
            "command": self.command,
            **({"not_driven": [*self.plan.launch.not_driven]} if self.plan.launch.text else {}),
            "seed": self.plan.seed,
            "profile": self.plan.profile.name,
            "workers": self.plan.workers,
            "verdict": self.verdict,
            "why_not_judged": self.why_not_judged,
            "interrupted": self.is_interrupted,
            "runs": tallies.runs,
            "replayed": len(self.result.replayed),
            "limited_runs": tallies.limited_runs,
            "steps": tallies.steps,
            "seconds": round(seconds, 3),
            "boot_seconds": [round(boot, 3) for boot in self.result.boots],
            "steps_per_second": round(tallies.steps / seconds, 1) if seconds else 0.0,
            "violations": tallies.failed_runs,
            "findings": [finding.figures() | self._figures(finding) for finding in self.findings],
            "known": [
                {
                    "bugs": bugs_in(name),
                    "runs": runs,
                    "upstream": upstream_of(name, self.target),
                    "muted": str(muted_by(name, self.active) or "") or None,
                }
                for name, runs in tallies.known.most_common()
            ],
            "probes": dict(sorted(tallies.probes.items())),
            "checks": {
                name: {"evaluated": tallies.evaluated[name], "not_applicable": tallies.not_applicable[name]}
                for name in names
            },
            "noops": {name: round(tallies.noops[name] / count, 4) for name, count in sorted(tallies.ops.items())},
            "faults": {fault: tallies.fired[fault] for fault in {**dict.fromkeys(self.target.faults), **tallies.fired}},
            "owed": self.owed,
            "not_exercised": dict(zip(("laws", "faults"), not_exercised(tallies, self.target), strict=True)),
            "never_due": self.never_due,
            "runs_since_new": self.result.reached.runs_since_new,
            "refused": {"draws": refused.total(), "most_frequent": most_frequent(refused)},
            "diverged": self.diverged,
            "target_faults": [*self.result.target_faults.values()],
        }

    def lines(self) -> list[str]:
        """The last lines of the output: what is new, the reasons, then the verdict and the figures in one line."""
        tallies, seconds = self.result.tallies, self.result.seconds
        verdict = self.verdict
        if verdict in (NOT_JUDGED, ONLY_KNOWN) and self.why_not_judged:
            verdict += f" ({self.why_not_judged})"
        lines = [*self.causes, *self.result.target_faults.values()]
        lines += [f"not deterministic: {run}" for run in self.diverged]
        lines += [f"red: {owed}" for owed in self.owed]
        lines += [self.found] if self.found else []
        if self.is_held and self.mutant is None:
            laws, faults = not_exercised(tallies, self.target)
            lines.append(f"not exercised by machine {self.plan.machine}: {len(laws)} laws, {len(faults)} faults")
        if self.never_due:
            lines.append(f"never due, because none of their events came: {', '.join(self.never_due)}")
        since_new = self.result.reached.runs_since_new
        if tallies.runs >= self.plan.profile.min_runs and since_new >= PLATEAU_SHARE * tallies.runs:
            lines.append(f"plateau: no new event or move of a request in {counted(since_new, 'run')}")
        if refused := self.result.refused:
            draws = counted(refused.total(), "drawn configuration")
            lines.append(f"{draws} refused, most often: {most_frequent(refused)}")
        boot = max(self.result.boots, default=0.0)
        lines += [f"boot {boot:.1f} s in each worker, not counted"] if boot >= SHORTEST_BOOT_S else []
        rate = tallies.steps / seconds if seconds else 0.0
        replayed = f" and {len(self.result.replayed)} of the corpus" if self.result.replayed else ""
        limited = f"{tallies.limited_runs} ended at the limit of their work, " if tallies.limited_runs else ""
        return [
            *lines,
            f"{verdict}: {counted(tallies.runs, 'run')}{replayed}, {counted(tallies.steps, 'engine step')} in "
            f"{seconds:.0f} s ({rate:.0f} a second), {counted(sum(tallies.evaluated.values()), 'check')}, "
            f"{tallies.rechecked} run twice, {limited}{tallies.failed_runs} failed with "
            f"{counted(len(self.findings), 'finding')}",
        ]


def verdicts_of_engines(outcomes: Sequence[Outcome]) -> str:
    """The engines by verdict, the worst verdict first."""
    *order, green = VERDICTS.values()
    order += [ONLY_KNOWN, green]
    engines = {verdict: [end.plan.engine for end in outcomes if end.verdict == verdict] for verdict in order}
    return "; ".join(f"{verdict}: {', '.join(names)}" for verdict, names in engines.items() if names)


def summary_of_engines(outcomes: Sequence[Outcome], command: str) -> dict[str, Any]:
    """The figures of several engines for scripts; `command` runs all their campaigns again."""
    return {
        "version": version("swarden"),
        "command": command,
        "verdicts": {outcome.plan.engine: outcome.verdict for outcome in outcomes},
        "engines": [outcome.summary() for outcome in outcomes],
    }


def _code_of(finding: Finding) -> ExitCode:
    """The exit code of a finding. A crash that passes when it is repeated does not prove a fault of the engine."""
    code = code_of_failure(finding.fingerprint)
    return code if finding.is_confirmed or code is ExitCode.FAULT else ExitCode.RED


def not_exercised(tallies: Tallies, target: Target) -> tuple[list[str], list[str]]:
    """The laws that were never evaluated, and the faults that never fired."""
    laws = [law.name for law in catalog_of(target.contracts).invariants if not tallies.evaluated[law.name]]
    return laws, [fault for fault in target.faults if not tallies.fired[fault]]


def never_due(tallies: Tallies, target: Target) -> list[str]:
    """The laws that need events which never came, although the engine does not declare that it never reports them.

    If the engine cannot report such an event, its laws may report violations where there are none.
    """
    return [
        invariant.name
        for invariant in catalog_of(target.contracts).invariants
        if invariant.on and not tallies.evaluated[invariant.name] and not tallies.not_applicable[invariant.name]
    ]


def missing_coverage(tallies: Tallies, profile: Profile, target: Target, *, is_held: bool = False) -> Iterator[str]:
    """The coverage that a campaign without violations lacks, one line each.

    A campaign that is held to one machine or to fixed settings cannot reach everything: `not_exercised` has the rest.
    """
    if is_held and not any(tallies.evaluated.values()):
        yield "no invariant was ever evaluated"
    for name, count in sorted(tallies.ops.items()):
        if count >= MIN_OCCURRENCES and tallies.noops[name] > MAX_NOOP_SHARE * count:
            yield f"op {name}: {tallies.noops[name]} of {count} were no-ops"
    if is_held:
        return
    if profile.must_evaluate:
        for invariant in catalog_of(target.contracts).invariants:
            if not tallies.evaluated[invariant.name] and not tallies.not_applicable[invariant.name]:
                yield f"invariant {invariant.name} was never evaluated"
        left_out = {fault for spec in target.machines.values() if not spec.batches for fault in spec.own_faults}
        for fault in target.faults:
            if not tallies.fired[fault] and fault not in left_out:
                yield f"fault {fault} never fired"
    for name, want in wanted_runs(tallies, profile, target).items():
        if tallies.probes[name] < want:
            yield f"probe {name}: seen in {tallies.probes[name]} runs, want at least {want}"


def wanted_runs(tallies: Tallies, profile: Profile, target: Target) -> dict[str, int]:
    """The number of runs that must reach each probe, by the number of runs of its machine."""
    return {
        name: math.ceil(profile.probe_floor * tallies.machine_runs[machine])
        for machine, spec in target.machines.items()
        for name in spec.probes
    }
