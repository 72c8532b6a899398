"""swarden engines try: a release installed, compared, fuzzed, and the known op-logs replayed on it, as one page."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.commands.campaigns import CampaignLimits, ended_campaigns
from swarden.harness.commands.console import ERR
from swarden.harness.commands.events import EventLines
from swarden.harness.commands.release_day import has_unknown_owner, lines_of, released
from swarden.harness.core.errors import UsageError
from swarden.harness.core.exit_codes import ExitCode, worst
from swarden.harness.core.fingerprint import slug
from swarden.harness.kit.reads import Comparison
from swarden.harness.kit.released import ReleasedTarget
from swarden.harness.nightly.replaying import logs_of
from swarden.harness.nightly.reports import plain, table
from swarden.harness.report.wording import counted
from swarden.harness.search.archive import Archive
from swarden.harness.search.campaign import Plan
from swarden.harness.search.endings import FAILS, OTHERWISE, PASSES, STEP_SECONDS, end_on
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.profiles import PROFILES, SHRINK_SECONDS
from swarden.harness.search.result import Finding
from swarden.harness.search.verification import known_lines
from swarden.harness.search.workers import WorkerGroup

SEED = 0  # of both campaigns
FAILURE = ("failure", "op-log", "on the older release")  # the heads of a table


class Campaigns(NamedTuple):
    """The limits of the campaign on each release, its workers, and the folder of the findings."""

    seconds: float
    max_runs: int | None
    workers: int
    out: Path


class Trial(NamedTuple):
    """A release under a short campaign and under the known op-logs.

    `outcome` is None, and `why_broken` says why, if the release cannot be driven.  `logs` has for each log how it ends:
    FAILS, PASSES, or why it cannot be run.
    """

    outcome: Outcome | None
    why_broken: Sequence[str]
    logs: Mapping[str, str]

    @property
    def findings(self) -> Sequence[Finding]:
        return [one for one in self.outcome.findings if one.is_confirmed] if self.outcome else []

    @property
    def evaluated(self) -> set[str]:
        return (
            {name for name, count in self.outcome.result.tallies.evaluated.items() if count} if self.outcome else set()
        )


class Failing(NamedTuple):
    """A failure of a release, its log, and how the log ends on the older release."""

    failure: str
    log: str
    before: str


class Page:
    """A release beside an older one: what works, is not applicable, is broken, fails newly, on both, or passes newly.

    `before` has, by log of a finding on this release, how it ends on the older one.
    """

    def __init__(
        self,
        target: ReleasedTarget[Any],
        comparison: Comparison,
        trials: tuple[Trial, Trial],
        before: Mapping[Path, str],
    ) -> None:
        self._target, self._comparison, self._before = target, comparison, before
        self._old, self._new = trials

    @cached_property
    def newly_failing(self) -> Sequence[Failing]:
        """The findings whose logs pass on the older release or fail there otherwise, and known op-logs that pass there.

        A failure that the campaign on the older release has found, too, is not new.
        """
        of_campaign = [one for one in self._of_campaign if one.before == PASSES or one.before.startswith(OTHERWISE)]
        return [*of_campaign, *(Failing("known", log, PASSES) for log in self._changed(PASSES, FAILS))]

    @cached_property
    def unanswered(self) -> Sequence[Failing]:
        """The findings whose logs cannot be run on the older release."""
        return [one for one in self._of_campaign if one.before != PASSES and not one.before.startswith(FAILS)]

    @cached_property
    def _of_campaign(self) -> Sequence[Failing]:
        on_both = {one.fingerprint for one in self._old.findings}
        saved = [(one.fingerprint, one.path) for one in self._new.findings if one.path is not None]
        return [Failing(name, str(path), FAILS if name in on_both else self._before[path]) for name, path in saved]

    @cached_property
    def unknown_owners(self) -> Sequence[Failing]:
        """The new failures that can come from a pool or an owner that the adapter does not know yet."""
        new = self.newly_failing
        return [one for one in new if has_unknown_owner(one.failure, self._target, self._comparison)]

    @property
    def code(self) -> ExitCode:
        has_unknown = bool(self.unknown_owners or self.unanswered)
        codes = [ExitCode.MISUSE] * bool(self._new.why_broken) + [ExitCode.RED] * has_unknown
        return worst([*codes, ExitCode.VIOLATED] if len(self.newly_failing) > len(self.unknown_owners) else codes)

    def lines(self) -> Iterator[str]:
        """The page as Markdown."""
        yield f"# {self._target.name} {self._target.version()}, beside {self._comparison.version}"
        for title, lines in self._sections().items():
            yield from ("", f"## {title}", "", *(lines or ["None."]))

    def _sections(self) -> Mapping[str, Sequence[str]]:
        older, failing = self._comparison.version, [one for one in self.newly_failing if one not in self.unknown_owners]
        unknown = [
            "A unit that is neither free nor owned: in a release that was not tried before its owner can be new."
        ]
        return {
            "Works": self._works(),
            "Not applicable": self._not_applicable(),
            "Broken": [
                *(f"- {plain(why)}" for why in self._new.why_broken),
                *(f"- {self._comparison.version}: {plain(why)}" for why in self._old.why_broken),
            ],
            "Newly failing": table(FAILURE, failing),
            **({"Unknown owners": [*unknown, "", *table(FAILURE, self.unknown_owners)]} if self.unknown_owners else {}),
            **({f"Cannot be run on {older}": table(FAILURE, self.unanswered)} if self.unanswered else {}),
            "Failing on both": table(("failure", "op-log"), self.failing_on_both),
            "Newly passing": table(("op-log",), [[log] for log in self._changed(FAILS, PASSES)]),
            "What the adapter reads": ["```", *lines_of(self._target, self._comparison), "```"],
        }

    @property
    def failing_on_both(self) -> Sequence[tuple[str, str]]:
        return [(one.failure, one.log) for one in self._of_campaign if one.before == FAILS]

    def _works(self) -> list[str]:
        outcome, logs = self._new.outcome, [one for one in self._new.logs.values() if one in (PASSES, FAILS)]
        if outcome is None:
            return []
        tallies = outcome.result.tallies
        laws, runs = counted(len(self._new.evaluated), "law"), counted(tallies.runs, "run")
        return [
            f"- {laws} in {runs} and {counted(tallies.steps, 'step')}",
            f"- {counted(len(logs), 'known op-log')} can be run",
            *(f"- {plain(line)}" for line in known_lines(tallies.known, self._target)),
        ]

    def _not_applicable(self) -> list[str]:
        before = self._comparison.version
        missing = sorted(self._old.evaluated - self._new.evaluated)
        cannot = {log: why for log, why in self._new.logs.items() if why not in (PASSES, FAILS)}
        return [
            *(f"- {name}: was evaluated on {before}, and not here" for name in missing),
            *(f"- {plain(f'{log}: {why}')}" for log, why in cannot.items()),
        ]

    def _changed(self, before: str, after: str) -> Sequence[str]:
        old, new = self._old.logs, self._new.logs
        return [log for log, end in new.items() if end == after and old.get(log) == before]


def trial_of(name: str, logs: Mapping[str, Path], plan: Plan) -> Trial:
    """The trial of a release: a campaign on it, and these logs."""
    try:
        with ended_campaigns([plan], CampaignLimits(STEP_SECONDS, SHRINK_SECONDS), EventLines(None)) as [campaign]:
            outcome = campaign.outcome(f"swarden fuzz --engine {name} --seed {plan.seed}")
    except UsageError as error:
        return Trial(None, [str(error)], {})
    if outcome.is_interrupted:
        raise KeyboardInterrupt
    why_broken = [*outcome.result.target_faults.values(), *outcome.result.unexplained_deaths]
    ERR.print(f"{name}: {counted(len(logs), 'known op-log')} to replay", markup=False)
    with WorkerGroup(1, None, hang_seconds=STEP_SECONDS) as group:
        return Trial(outcome, why_broken, {label: end_on(group, name, path) for label, path in logs.items()})


def known_logs(target: ReleasedTarget[Any], archive: Path | None) -> dict[str, Path]:
    """The op-logs of the known bugs of a target, and of the findings of an archive."""
    of_bugs = {path.name: path for bug in target.known_bugs().values() for path in bug.oplogs}
    if archive is None:
        return of_bugs
    errors: list[str] = []
    found = {one.name: logs_of(one)[0] for one in Archive(archive).findings(errors) if one.engine == target.name}
    for error in errors:
        ERR.print(error, markup=False)
    return of_bugs | found


def tried(target: ReleasedTarget[Any], comparison: Comparison, campaigns: Campaigns, archive: Path | None) -> Page:
    """The page of a release beside an older one; an `archive` has further op-logs."""
    trials = []
    for version in (comparison.version, target.version()):
        name = f"{target.name}=={version}"
        folder = campaigns.out / slug(name)
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(
            name, PROFILES["smoke"], SEED, campaigns.seconds, campaigns.max_runs, out=folder, workers=campaigns.workers
        )
        ERR.print(f"{name}: random traffic; what fails is shrunk behind it", markup=False)
        trials.append(trial_of(name, known_logs(released(name), archive), plan))
    older, [old, new] = f"{target.name}=={comparison.version}", trials
    saved = {one.path: one.fingerprint for one in new.findings if one.path is not None}
    ERR.print(f"{older}: {counted(len(saved), 'finding')} to replay", markup=False)
    with WorkerGroup(1, None, hang_seconds=STEP_SECONDS) as group:
        before = {path: end_on(group, older, path, name) for path, name in saved.items()}
    return Page(target, comparison, (old, new), before)
