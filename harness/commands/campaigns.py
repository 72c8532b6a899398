"""The campaigns of one command: each engine has a campaign with its own worker processes, all at the same time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from swarden.harness.commands.console import ERR, progress
from swarden.harness.commands.events import EventLines
from swarden.harness.commands.progress import ProgressDisplay
from swarden.harness.core.changes import fixes_of
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.mutant_file import mutant_of
from swarden.harness.core.registry import target_of
from swarden.harness.search.campaign import Plan
from swarden.harness.search.corpus import rarest_first, write
from swarden.harness.search.endings import base_of, beside
from swarden.harness.search.keys import kind_of
from swarden.harness.search.mutes import Mute
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.process import prepare_process
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.traffic.profiles import SHRINK_CPU_SECONDS
from swarden.harness.search.workers import WorkerGroup, interruptible

END = object()


class CampaignLimits(NamedTuple):
    """The seconds without an engine step until a worker is killed, those to shrink all findings, and the mutes."""

    step_seconds: float
    shrink_seconds: float
    mutes: Mapping[str, Mute] = {}


@dataclass
class Campaign:
    """One engine's campaign: its workers, and the findings that they have reported."""

    plan: Plan
    group: WorkerGroup
    lines: EventLines
    limits: CampaignLimits
    findings: list[Finding] = field(default_factory=list)
    not_reproduced: list[str] = field(default_factory=list)
    is_interrupted: bool = False

    def working(self) -> Iterator[None]:
        """Make all runs, then shrink and report every finding with the same workers."""
        assert self.plan.out is not None, "a campaign has a folder for its findings"
        yield from self.group.running(self.plan)
        if self.plan.keeps_runs and self.plan.corpus is not None:
            result = self.group.result
            write(self.plan.corpus, rarest_first(result.rare), replaced=result.replayed)
        budget = ShrinkBudget(cpu_seconds=SHRINK_CPU_SECONDS)
        for finding in self.group.report_findings(self.plan.out, budget, seconds=self.limits.shrink_seconds):
            if finding is not None and finding.cause.bugs:
                self.group.result.tallies.attribute(finding.fingerprint, finding.cause.name)
            elif finding is not None and finding.why_flaky:
                self.not_reproduced.append(finding.why_flaky)
            elif finding is not None and not self._has_same(finding):
                self.findings.append(finding)
                self.lines.write("finding", engine=self.plan.engine, **finding.figures())
            yield
        if self.findings and (base := base_of(target_of(self.plan.engine))):
            yield from beside(self.findings, base, lambda: self.group.is_interrupted)
        self.is_interrupted = self.group.is_interrupted

    def _has_same(self, finding: Finding) -> bool:
        """Whether the shrunk log of an earlier finding fails at the same statements; it then has the runs of both."""
        tallies = self.group.result.tallies
        for one in self.findings:
            if finding.statements and (one.fingerprint, one.statements) == (finding.fingerprint, finding.statements):
                tallies.kinds[kind_of(one.fingerprint, one.key)] += tallies.runs_of(finding, (one, finding))
                return True
        return False

    def outcome(self, command: str) -> Outcome:
        """The outcome of the finished campaign, which `command` runs again."""
        mutant = mutant_of(target_of(self.plan.engine), self.plan.mutant) if self.plan.mutant is not None else None
        result = self.group.result
        ended = (self.findings, self.not_reproduced, mutant, self.is_interrupted)
        return Outcome(self.plan, command, result, *ended, mutes=self.limits.mutes)


def plans_for(engines: Sequence[str], shared: Plan) -> list[Plan]:
    """A plan for each engine. The workers are divided, at least one each; each engine has folders of its own."""
    assert shared.out is not None, "a campaign has a folder for its findings"
    each, more = divmod(shared.workers, len(engines))
    return [
        replace(
            shared,
            engine=engine,
            model=shared.model or model_of_mutant(engine, shared.mutant),
            fixes=fixes_of(target_of(engine), shared.fixes),
            workers=max(1, each + (index < more)),
            out=shared.out / slug(engine) if len(engines) > 1 else shared.out,
            corpus=shared.corpus / slug(engine) if shared.corpus and len(engines) > 1 else shared.corpus,
        )
        for index, engine in enumerate(engines)
    ]


def model_of_mutant(engine: str, mutant: str | None) -> str:
    """The model that a mutant needs; "" for the stand-in."""
    return mutant_of(target_of(engine), mutant).model if mutant is not None else ""


@contextmanager
def ended_campaigns(plans: Sequence[Plan], limits: CampaignLimits, lines: EventLines) -> Iterator[list[Campaign]]:
    """Run all campaigns at the same time; each ends when its findings are reported.

    The first SIGINT or SIGTERM interrupts the campaigns that have not ended, but not the body, which prints the
    verdict.
    """
    prepare_process()
    bar = progress()
    campaigns = []
    for plan in plans:
        assert plan.out is not None, "a campaign has a folder for its findings"
        on_progress = ProgressDisplay(plan, bar, lines).update
        group = WorkerGroup(plan.workers, plan.out, hang_seconds=limits.step_seconds, on_progress=on_progress)
        campaigns.append(Campaign(plan, group, lines, limits))
    with interruptible([campaign.group for campaign in campaigns]):
        try:
            with bar, ExitStack() as stack:
                for campaign in campaigns:
                    stack.enter_context(campaign.group)
                _take_turns(campaign.working() for campaign in campaigns)
        except KeyboardInterrupt:
            folders = ", ".join(str(plan.out) for plan in plans)
            ERR.print(f"swarden: interrupted; findings not shrunk yet are *.unshrunk.oplog in {folders}", markup=False)
            raise
        yield campaigns


def _take_turns(iterators: Iterable[Iterator[None]]) -> None:
    """Exhaust all iterators, one element of each in turn."""
    waiting = list(iterators)
    while waiting:
        waiting = [one for one in waiting if next(one, END) is not END]
