"""The random traffic of a night: the shards of each engine's campaign, and the sum of their counts."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from swarden.harness.core.admission import load_log
from swarden.harness.core.changes import fixes_of
from swarden.harness.core.oplog import OpLog, OpLogError
from swarden.harness.core.registry import target_of
from swarden.harness.nightly.archive import Status
from swarden.harness.nightly.events import ProbeReached, Runs, WorkerReplaced
from swarden.harness.nightly.journal import ShardFile, record_of
from swarden.harness.nightly.night import Coordinator
from swarden.harness.nightly.night_records import ShardRecord
from swarden.harness.nightly.pool import Job
from swarden.harness.nightly.replaying import log_path
from swarden.harness.nightly.shards import BATCHES, ShardResult, plan_of_shard, run_shard
from swarden.harness.report.wording import counted
from swarden.harness.search.campaign import Plan
from swarden.harness.search.corpus import CorpusLog, RareRun, files_of, rarest_first, write
from swarden.harness.search.outcome import Outcome, wanted_runs
from swarden.harness.search.result import Result, Tallies

SHARD_S = 600.0  # seconds of a shard, unless the minutes of the night are over before


class ShardKey(NamedTuple):
    """A shard of the campaign of one engine."""

    engine: str
    ordinal: int

    def __str__(self) -> str:
        return f"{self.engine} shard {self.ordinal}"


def traffic(night: Coordinator) -> str:
    """Make new shards until the time or the runs are used up; returns the text of the phase's line."""
    shards = list(night.journal.shards(night.record.errors))
    campaigns = {engine: campaign_of(night, engine) for engine in night.engine_names}
    corpora = {engine: _corpus(night, engine) for engine in campaigns}
    gathered = _Gathered(night, campaigns)
    for shard in shards:
        gathered.add(shard)
    remaining = dict(campaigns)
    for key, done in night.jobs(_jobs(night, remaining, corpora, shards)):
        if done.result.gone:
            remaining.pop(key.engine, None)
        shard = gathered.shard_file(key, done)
        night.journal.add(shard)
        gathered.add(shard, is_new=True)
        shards.append(shard)
    for engine, plan in campaigns.items():
        records = [shard.record for shard in shards if shard.record.engine == engine]
        _sum_up(night, plan, records)
        if plan.mutant is None:
            replayed = {name for record in records for name in record.replayed}
            write(night.archive.corpus_of(engine), rarest_first(gathered.rare[engine]), replaced=replayed)
    night.record.shards = sorted((shard.record for shard in shards), key=attrgetter("engine", "ordinal"))
    return ", ".join(
        f"{engine.engine}: {counted(engine.tallies.runs, 'run')}, {counted(engine.tallies.steps, 'engine step')} in "
        f"{counted(engine.shards, 'shard')}, {engine.tallies.failed_runs} failed"
        for engine in night.record.engines
    )


def campaign_of(night: Coordinator, engine: str) -> Plan:
    """The campaign of an engine, of which the shards are parts."""
    return Plan(
        engine=engine,
        profile=night.profile,
        seed=night.record.seed,
        seconds=SHARD_S,
        max_runs=night.record.runs,
        mutant=night.record.mutant,
        known=_logs_that_fail(night, engine),
        settings=night.record.settings,
        machine=night.record.machine,
        fixes=fixes_of(target_of(engine), night.record.fixes),
    )


def _logs_that_fail(night: Coordinator, engine: str) -> list[OpLog]:
    """The logs of the archive that failed again in this night's replay; random runs are steered away from them."""
    logs = []
    for finding in night.record.findings:
        if finding.sighting.engine == engine and finding.sighting.status in (Status.RECURRING, Status.REOPENED):
            log = load_log(log_path(night, finding), engine=engine, inside=night.archive.root)
            logs.append(log.as_regression(finding.fingerprint))
    return logs


def _corpus(night: Coordinator, engine: str) -> list[CorpusLog]:
    """The corpus of an engine; a log that cannot be read is reported and left where it is."""
    logs = []
    for path in files_of(night.archive.corpus_of(engine)):
        try:
            logs.append(CorpusLog(path.name, load_log(path, engine=engine, inside=path.parent)))
        except OpLogError as error:
            night.record.errors.append(str(error))
    return logs


def _jobs(
    night: Coordinator, campaigns: Mapping[str, Plan], corpora: Mapping[str, list[CorpusLog]], done: Sequence[ShardFile]
) -> Iterator[Job]:
    """A job for each shard that is not done yet, engine by engine in turn, until the time is used up."""
    ended = {ShardKey(shard.record.engine, shard.record.ordinal) for shard in done}
    spent_s = sum(shard.record.seconds for shard in done) / night.pool.width
    minutes = night.record.minutes
    until = time.monotonic() + 60 * (minutes if minutes is not None else float("inf")) - spent_s
    size = BATCHES * night.profile.runs_per_batch
    ordinal, runs = 0, night.record.runs
    while campaigns and time.monotonic() < until and (runs is None or ordinal * size < runs):
        for engine, campaign in [*campaigns.items()]:
            key = ShardKey(engine, ordinal)
            if key not in ended and time.monotonic() < until:
                plan = plan_of_shard(campaign, ordinal, corpora[engine])
                left_s = min(plan.seconds, until - time.monotonic())
                yield Job(key, run_shard, (replace(plan, seconds=left_s), night.limits))
        ordinal += 1


class _Gathered:
    """The features and the probes that the shards have reached so far, and the runs for the corpora."""

    def __init__(self, night: Coordinator, campaigns: Mapping[str, Plan]) -> None:
        self.rare: dict[str, list[RareRun]] = {engine: [] for engine in campaigns}
        self._night = night
        self._known = {engine: {log.header.expected for log in plan.known} for engine, plan in campaigns.items()}
        self._features: dict[str, set[int]] = {engine: set() for engine in campaigns}
        self._probes: set[tuple[str, str]] = set()

    def shard_file(self, key: ShardKey, done: ShardResult) -> ShardFile:
        """The shard for the journal, without known findings and without features that are not new."""
        features, rare = self._features[key.engine], []
        for run in done.result.rare:
            if not run.features <= features:
                features |= run.features
                rare.append(run)
        findings = [finding for name, finding in done.result.findings.items() if name not in self._known[key.engine]]
        return ShardFile(record=record_of(key.engine, key.ordinal, BATCHES, done), findings=findings, rare=rare)

    def add(self, shard: ShardFile, *, is_new: bool = False) -> None:
        record, night = shard.record, self._night
        self._features[record.engine].update(*(run.features for run in shard.rare))
        self.rare[record.engine] += shard.rare
        first_seen = [name for name in record.tallies.probes if (record.engine, name) not in self._probes]
        self._probes.update((record.engine, name) for name in first_seen)
        if not is_new:
            return
        for name in first_seen:
            night.emit(ProbeReached(engine=record.engine, name=name, shard=record.ordinal))
        for reason in record.replaced:
            night.emit(WorkerReplaced(engine=record.engine, shard=record.ordinal, reason=reason))
        night.emit(
            Runs(
                engine=record.engine,
                shard=record.ordinal,
                first_batch=record.first_batch,
                batches=record.batches,
                node=record.node,
                runs=record.tallies.runs,
                steps=record.tallies.steps,
                failed_runs=record.tallies.failed_runs,
                seconds=record.seconds,
                cpu_seconds=record.cpu_seconds,
            )
        )


def _sum_up(night: Coordinator, plan: Plan, records: Sequence[ShardRecord]) -> None:
    """Add up the shards of an engine, and judge its coverage."""
    of_night, tallies = night.engine(plan.engine), Tallies()
    for record in records:
        tallies.add(record.tallies)
    deaths = [death for record in records for death in record.unexplained_deaths]
    outcome = Outcome(plan, night.record.command, Result(tallies, unexplained_deaths=deaths))
    of_night.tallies, of_night.shards = tallies, len(records)
    of_night.seconds = round(sum(record.seconds for record in records), 3)
    of_night.cpu_seconds = round(sum(record.cpu_seconds for record in records), 3)
    of_night.diverged = [run for record in records for run in record.diverged]
    of_night.wanted = wanted_runs(tallies, plan.profile, target_of(plan.engine))
    canaries = [canary for canary in night.record.canaries if canary.engine == plan.engine]
    unproven = [canary.result for canary in canaries if not (canary.law or canary.is_missed)]
    reasons = filter(None, [outcome.why_not_judged, *unproven])
    of_night.why_not_judged = "; ".join(reasons) if plan.mutant is None else ""
    of_night.owed = deaths if plan.mutant is not None else outcome.owed
