"""A change of an engine judged by its base: random traffic on the head, and each failure replayed on the base."""

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from swarden.harness.core.errors import UsageError
from swarden.harness.core.replay import Verdict
from swarden.harness.report.story import StoryLine, StoryPart
from swarden.harness.search.campaign import Plan
from swarden.harness.search.findings import write_unshrunk
from swarden.harness.search.judge import FAILS, OTHERWISE, PASSES, STEP_SECONDS, Rule, end_of, judging
from swarden.harness.search.process import prepare_process
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.tasks import boot, following
from swarden.harness.search.traffic.profiles import SHRINK_CPU_SECONDS
from swarden.harness.search.workers import WorkerGroup, interruptible

ResultT = TypeVar("ResultT")
MOST_LOGS = 4  # of one failure that are replayed on the base
BOOT_S, VERDICT_S = 45.0, 100.0  # from the end of the minutes to the end of the traffic, and to the verdict
RESERVE_S = 15.0  # before the verdict: for the last replays on the base
LOCALS = ".<locals>"  # behind the name of a function in that of one in it
NOT_REPLAYED = "was not replayed in time"


class Judged(NamedTuple):
    """A failure of the head, and how its log ends on the base: PASSES, FAILS, OTHERWISE, or why it cannot be run.

    `ran` has the ordinals of the changed lines that its log executes on the head, if the failure is new; None if the
    time was too short to see them.
    """

    finding: Finding
    end: str
    ran: frozenset[int] | None = None

    @property
    def name(self) -> str:
        """The name of the failure, with the known bugs whose fixes cure it; whether it failed again each time."""
        name, cause = self.finding.name, self.finding.cause.name
        name += f", which the fix of {cause} cures" if cause else ""
        return f"{name}, which does not fail each time" if self.is_flaky else name

    @property
    def is_flaky(self) -> bool:
        """Whether it was repeated, and did not fail each time."""
        return self.finding.verdict is not None and not self.finding.is_confirmed

    @property
    def is_new(self) -> bool:
        return self.end == PASSES

    @property
    def is_old(self) -> bool:
        return self.end == FAILS

    @property
    def rank(self) -> int:
        """0 for a new failure; a failure that is new by one of its logs is new."""
        return 0 if self.is_new else 1 if self.end.startswith(OTHERWISE) else 3 if self.is_old else 2


def judged_by_base(
    plan: Plan, base: str, on_progress: Callable[["Gate", WorkerGroup], None], renamed: Mapping[str, str] = {}
) -> tuple["Gate", Sequence[str]]:
    """A gate that has ended, and why its head cannot be driven, if it cannot.

    `on_progress` is called with the gate and the group of which a worker has made progress.
    """
    assert plan.out is not None, "a gate has a folder for its findings"
    prepare_process()
    head, of_base = (
        WorkerGroup(workers, out, hang_seconds=STEP_SECONDS, on_progress=lambda group: on_progress(gate, group))
        for workers, out in ((plan.workers, plan.out), (1, None))
    )
    gate, why_broken = Gate(plan, base, head, of_base, renamed), []
    with interruptible([head, of_base]), head, of_base:
        try:
            gate.run(plan.out)
        except UsageError as error:
            why_broken = [str(error)]
    on_progress(gate, of_base)
    return gate, [*why_broken, *head.result.target_faults.values(), *head.result.unexplained_deaths]


class Gate:
    """Makes the traffic of a plan on the head, replays its failures on the base meanwhile, and shrinks the new ones.

    `judged` has the failures by name, `phase` is what is done now.  Both groups are entered.
    """

    def __init__(
        self, plan: Plan, base: str, workers: WorkerGroup, of_base: WorkerGroup, renamed: Mapping[str, str] = {}
    ) -> None:
        """`base` is the engine of the group `of_base`, which has one worker; `workers` are those of the head.

        `renamed` has the names on the base of functions with another name, for the names of errors.
        """
        self.head, self.judged, self.phase = workers, dict[str, Judged](), "random traffic on the head"
        self.plan, self.base, self._of_base, self._renamed = plan, base, of_base, renamed
        self._replayed = defaultdict[str, set[str]](set)  # the keys of the logs by name
        self._is_judging = False
        self._verdict_at = time.monotonic() + plan.seconds + VERDICT_S

    @property
    def left_s(self) -> float:
        """The time that is left until the verdict."""
        return max(0.0, self._verdict_at - time.monotonic())

    @property
    def waiting(self) -> Iterator[tuple[str, Finding]]:
        """The failures of the head with a log that is to be replayed on the base."""
        result = self.head.result
        for name, finding in (*result.findings.items(), *result.known.items()):
            replayed, judged = self._replayed[name], self.judged.get(name)
            is_open = judged is None or (not judged.is_new and len(replayed) < MOST_LOGS)
            if is_open and finding.log.key not in replayed:
                yield name, finding

    def run(self, out: Path) -> None:
        """Work until the verdict; the logs of the failures are below `out`.  An interrupt of the head ends it at once.

        Raises UsageError if the head cannot be driven.
        """
        began, judging = time.monotonic(), self._judging()
        for _ in self.head.running(self.plan):
            if self.left_s < VERDICT_S - BOOT_S:
                self.head.stop()
            next(judging)
            if self.head.is_interrupted:
                break
        result = self.head.result
        result.seconds = result.seconds or time.monotonic() - began
        self.phase = "replaying failures on the base"
        while self._is_judging and not self.head.is_interrupted and self.left_s > 2 * RESERVE_S:
            if not (result.findings or result.known):
                break  # the base may still boot
            next(judging)
        for name, finding in result.findings.items():
            self.judged.setdefault(name, Judged(finding, NOT_REPLAYED))
        self.phase = "shrinking new failures"
        self._report(out)

    def _judging(self) -> Iterator[None]:
        """Boot the base, which the traffic of the head hides; then replay failures on it, one after the other."""
        self._is_judging = True
        with suppress(UsageError):  # the replays have the reason, too
            yield from self._of_base.calling(boot, self.base)
        while True:
            name, finding = next(self.waiting, ("", None))
            self._is_judging = finding is not None
            if finding is None:
                yield
                continue
            self._replayed[name].add(finding.log.key)
            judged = Judged(finding, (yield from self._end_on_base(finding)))
            before = self.judged.get(name)
            if before is None or judged.rank < before.rank:
                self.judged[name] = judged

    def _end_on_base(self, finding: Finding) -> Generator[None, None, str]:
        names = [self._on_base(name) for name in finding.fingerprints]
        return end_of((yield from judging(self._of_base, finding.log, self.base, Rule(names, needs_fixes=False))))

    def _on_base(self, fingerprint: str) -> str:
        """The fingerprint with the names that functions have on the base."""
        parts = [part.partition(LOCALS) for part in fingerprint.split("/")]
        return "/".join(f"{self._renamed.get(name, name)}{more}{inner}" for name, more, inner in parts)

    def _in_time(self, replaying: Generator[None, None, ResultT]) -> ResultT | None:
        """The result of replays, if the time suffices."""
        while self.left_s and not self.head.is_interrupted:
            try:
                next(replaying)
            except StopIteration as end:
                result: ResultT = end.value
                return result
        return None

    def _report(self, out: Path) -> None:
        """Shrink the new failures, and put the reports in their place."""
        new = {name: judged.finding for name, judged in self.judged.items() if judged.is_new}
        self.head.result.findings = {name: finding for name, finding in new.items() if not finding.cause.bugs}
        reports: dict[float, Finding] = {}  # the name of a report can be another one
        found_at = {finding.found_cpu_seconds for finding in new.values()}
        budget, shrink_s = ShrinkBudget(cpu_seconds=SHRINK_CPU_SECONDS), max(0.0, self.left_s - RESERVE_S)
        reporting = self.head.report_findings(out, budget, seconds=shrink_s) if not self.head.is_interrupted else ()
        for report in reporting:
            if report is not None and report.found_cpu_seconds in found_at:
                reports[report.found_cpu_seconds] = report
            elif report is not None:  # a crash with the fix of a known bug, which a verification has met
                end = None if self._is_judging else self._in_time(self._end_on_base(report))
                self.judged[report.name] = Judged(report, end or NOT_REPLAYED)
            if self.head.is_interrupted:
                break
        for name, finding in new.items():
            self.judged[name] = self._shown(finding, reports.get(finding.found_cpu_seconds), out)

    def _shown(self, finding: Finding, report: Finding | None, out: Path) -> Judged:
        """The report of a new failure, or the failure as it was found, with the reason."""
        why = ""
        if finding.cause.bugs or (report is not None and report.cause.bugs):
            why = "of a known bug"
        elif report is None:
            why = "interrupted before it was shrunk"
        elif report.log.key != finding.log.key and not report.why_flaky:
            end = None if self._is_judging else self._in_time(self._end_on_base(report))
            why = f"its shrunk op-log {end or NOT_REPLAYED} on the base" if end != PASSES else ""
        shown = report if report is not None and not why else finding
        rule = Rule([shown.fingerprint], with_story=shown is finding, block=partial(following, self.plan.change))
        replays = self._in_time(judging(self.head, shown.log, self.plan.engine, rule))
        is_failing = replays is not None and replays.verdict is Verdict.FAILED
        ran = replays.ran if replays is not None and is_failing else None
        if shown is report:
            return Judged(report, PASSES, ran)
        story = [StoryLine(StoryPart.HISTORY, line) for line in (replays.story if replays is not None else ())]
        why += f"; when it is repeated: {end_of(replays)}" if replays is not None and not is_failing else ""
        shown = write_unshrunk(finding.changed(story=story or finding.story), out, f"not shrunk: {why}")
        if replays is not None and replays.verdict is not Verdict.ERROR:
            shown = shown.repeated(
                replays.verdict, replays.failures, replays.runs, replays.diverged, names=replays.fingerprints
            )
        return Judged(shown, PASSES, ran)
