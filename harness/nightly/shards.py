"""Shards: parts of a campaign that run on any Executor, of this machine or of many; and the other work of a night.

A shard is BATCHES successive batches of the campaign with the night's seed, so `swarden fuzz` with this seed makes the
same runs, whatever the number of workers.  Each function here is one job of an Executor.  It drives a worker
process of its own, so a crash of the engine ends neither the thread of the Executor nor its node.
"""

import atexit
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.admission import parse_log
from swarden.harness.core.errors import EngineGone, UsageError
from swarden.harness.core.fingerprint import is_same
from swarden.harness.core.mutant import Mutant
from swarden.harness.core.mutant_file import mutant_of
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.patch import StalePatch
from swarden.harness.core.process import ProcessLimits
from swarden.harness.core.registry import target_for, target_of
from swarden.harness.core.replay import RUNS, Replays, Verdict, is_death, not_run
from swarden.harness.nightly.night_records import CANARY_RUNS, Canary
from swarden.harness.search.campaign import Plan
from swarden.harness.search.corpus import PER_BATCH, CorpusLog, CorpusPart
from swarden.harness.search.judge import Rule, judge
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.run import RunIndex
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.traffic.profiles import SHRINK_CPU_SECONDS
from swarden.harness.search.workers import WorkerGroup

BATCHES = 4  # of a shard
BADNESS = (Verdict.FIXED, Verdict.ERROR, Verdict.CHANGED, Verdict.FLAKY, Verdict.FAILED)
SETTLE_S = 900.0  # of one finding of a server, whose shrink waits and uses no CPU time
REPEATED = Rule(runs=RUNS)
FRESH = 3  # processes in which a finding must fail before it is published


class EngineBuild(NamedTuple):
    """The version of an engine, and the hash of all sources that can change a run on it."""

    engine: str
    version: str
    source_hash: str


class ShardResult(NamedTuple):
    """The result of a shard, and the host that ran it."""

    result: Result
    node: str


def plan_of_shard(campaign: Plan, ordinal: int, corpus: list[CorpusLog]) -> Plan:
    """The part of a campaign that the shard with this ordinal runs, with its part of the corpus."""
    first = ordinal * BATCHES
    most = (first + BATCHES) * campaign.profile.runs_per_batch
    part = CorpusPart(corpus[first * PER_BATCH : (first + BATCHES) * PER_BATCH], first)
    most = min(most, campaign.max_runs or most)
    return replace(campaign, first_run=RunIndex(first), max_runs=most, part=part)


# --- the jobs


def on_same_build(builds: Sequence[EngineBuild], job: Callable[..., Any], *arguments: Any) -> Any:
    """Run a job; raises UsageError if this node has another build of an engine or of swarden than the coordinator."""
    for want in builds:
        have = build_of(want.engine)
        if have != want:
            raise UsageError(
                f"{socket.gethostname()}: has {have.engine} {have.version} in build {have.source_hash}, want "
                f"{want.version} in build {want.source_hash}; install the same packages on all nodes"
            )
    return job(*arguments)


def build_of(engine: str) -> EngineBuild:
    """The build of an engine on this machine."""
    target = target_of(engine)
    return EngineBuild(engine, target.version(), target.source_hash())


def run_shard(plan: Plan, limits: ProcessLimits, until: Collection[str] = ()) -> ShardResult:
    """Make the runs of a plan; a finding of one of the laws `until` ends them, and so does the end of the engine."""
    try:
        with _lane(plan.engine, limits) as group:
            group.run(plan, lambda result: any(finding.invariant in until for finding in result.findings.values()))
    except EngineGone as error:
        group.result.gone = str(error)
    return ShardResult(group.result, socket.gethostname())


def find_canary(campaign: Plan, mutants: Sequence[str], limits: ProcessLimits) -> Canary:
    """Plant the first of these mutants that fits the engine, and search for it in the seconds of the campaign."""
    target = target_of(campaign.engine)
    for mutant in (mutant_of(target, name) for name in mutants):
        of_mutant = replace(campaign, mutant=mutant.id, machine=mutant.machine, model=mutant.model)
        try:
            return _searched(of_mutant, mutant, limits)
        except StalePatch:
            continue
    return Canary(engine=campaign.engine, mutant="")


def _searched(plan: Plan, mutant: Mutant, limits: ProcessLimits) -> Canary:
    """Plant a mutant and search for it.  A failure of the engine without it does not count: another seed follows."""
    runs, seconds, law = 0, 0.0, ""
    for seed in count(plan.seed):
        rest = replace(plan, seed=seed, seconds=plan.seconds - seconds, max_runs=CANARY_RUNS - runs)
        result = run_shard(rest, limits, until=mutant.caught_by).result
        runs, seconds = runs + result.tallies.runs, seconds + result.seconds
        caught = [finding for finding in result.findings.values() if finding.invariant in mutant.caught_by]
        law = next((finding.invariant for finding in caught if _is_of_the_mutant(finding, plan.engine, limits)), "")
        if law or not caught or runs >= CANARY_RUNS or seconds >= plan.seconds:
            break
    return Canary(engine=plan.engine, mutant=mutant.id, law=law, runs=runs, seconds=round(seconds, 3))


def _is_of_the_mutant(finding: Finding, engine: str, limits: ProcessLimits) -> bool:
    """Whether the log of a finding does not fail in the same way without its mutant."""
    with _lane(engine, limits) as group:
        without = judge(group, finding.log.with_header(mutant=None), engine, Rule([finding.fingerprint]))
    return without.verdict in (Verdict.FIXED, Verdict.CHANGED)


def replay_log(content: bytes, path: Path, engine: str, mutant: str | None, limits: ProcessLimits) -> Replays:
    """Run the content of an op-log file on an engine, with this mutant in place of its own.

    A log that kills its process against expectation is run again in a fresh process, because the process may have been
    killed from outside.
    """
    try:
        log = parse_log(content, path, engine=engine)
    except UsageError as error:
        return not_run(str(error))
    log = log if mutant == log.header.mutant else log.with_header(mutant=mutant)
    with _lane(engine, limits) as group:
        replays = judge(group, log, engine, REPEATED)
    if replays.verdict is Verdict.CHANGED and is_death(replays.fingerprints[0]):
        with _group(limits) as fresh:
            return judge(fresh, log, engine, REPEATED)
    return replays


def replay_with_story(log: OpLog, limits: ProcessLimits) -> Replays:
    """Run a log, with the story of its failure; raises UsageError if the log cannot be run."""
    with _lane(log.header.engine, limits) as group:
        return group.replay(log, RUNS, with_story=True)


def replay_logs(
    logs: Sequence[tuple[bytes, Path]], engine: str, mutant: str | None, limits: ProcessLimits
) -> tuple[Path, Replays]:
    """Replay the op-logs of one finding until one fails as it expects.

    Returns the path and the replays of that one, or of the first with the worst result; see replay_log.
    """
    done: list[tuple[Path, Replays]] = []
    for content, path in logs:
        done.append((path, replay_log(content, path, engine, mutant, limits)))
        if done[-1][1].verdict is Verdict.FAILED:
            break
    return max(done, key=lambda replayed: BADNESS.index(replayed[1].verdict))


def settle(finding: Finding, engine: str, limits: ProcessLimits) -> list[Finding]:
    """Shrink a finding, and run the shrunk log once in each of FRESH fresh processes, which give its verdict.

    The finding is the first of the result; crashes with fixes of known bugs that were met meanwhile come after it.
    """
    with _lane(engine, limits) as group, tempfile.TemporaryDirectory(dir=group.folder) as folder:
        budget = ShrinkBudget(cpu_seconds=SHRINK_CPU_SECONDS)
        seconds = inf if target_for(finding.log.header).is_repeatable else SETTLE_S
        reports = group.report([finding], Path(folder), budget, seconds=seconds)
    return [_confirmed(report, limits) for report in reports]


def _confirmed(report: Finding, limits: ProcessLimits) -> Finding:
    """A finding whose log was run once in each of FRESH fresh processes, unless it is known or flaky already.

    One process drives a server, and no fresh one beside it: there the log is run FRESH times.
    """
    if report.cause.bugs:
        return report
    if report.why_flaky:
        return report.changed(log=report.log.as_regression(report.fingerprint))
    expected, again, why = report.fingerprints, list[Replays](), ""
    is_repeatable = target_for(report.log.header).is_repeatable
    try:
        for _ in range(FRESH if is_repeatable else 1):
            with _group(limits) if is_repeatable else _lane(report.engine, limits) as group:
                again.append(group.replay(report.log, 1 if is_repeatable else FRESH))
    except EngineGone as error:  # the run has ended the engine: there is no further run
        return report.repeated(Verdict.FAILED, 1, 1, str(error), names=expected)
    except UsageError as error:
        why = str(error)
    failing = [replays for replays in again if is_same([report.fingerprint], replays.fingerprints)]
    if is_repeatable:
        failing = [replays for replays in failing if replays.verdict is Verdict.FAILED]
    other = next((replays for replays in again if replays not in failing), None)
    if other is not None and not why:
        ended, others = other.verdict.value, ", ".join(other.fingerprints)
        text = f"a fresh process: {ended} {others}" if is_repeatable else f"{ended} when it was run again {others}"
        why = other.diverged or text.rstrip()
    failures, runs = sum(replays.failures for replays in failing), sum(replays.runs for replays in again)
    return report.repeated(Verdict.FLAKY if why else Verdict.FAILED, failures, runs, why, names=expected)


# --- the worker processes


_LANES: dict[tuple[int, str, ProcessLimits], WorkerGroup] = {}


@contextmanager
def _lane(engine: str, limits: ProcessLimits) -> Iterator[WorkerGroup]:
    """The worker process of this thread for an engine with these limits; it boots once, and is closed by an error."""
    key = (threading.get_ident(), engine, limits)
    if key not in _LANES:
        _LANES[key] = _group(limits).__enter__()
    with ExitStack() as after_error:
        after_error.callback(lambda: _LANES.pop(key).__exit__())
        yield _LANES[key]
        after_error.pop_all()


def _group(limits: ProcessLimits) -> WorkerGroup:
    return WorkerGroup(1, None, hang_seconds=limits.hang_seconds, memory_bytes=limits.memory_bytes)


def runs_of_lanes() -> int:
    """The random runs of the worker processes of all threads of this process."""
    return sum(tallies.runs for lane in [*_LANES.values()] for tallies in lane.tallies)


def interrupt_lanes() -> None:
    """End the jobs of all threads of this process early; their current runs are discarded."""
    for lane in list(_LANES.values()):
        if not lane.is_interrupted:
            lane.interrupt()


@atexit.register
def close_lanes() -> None:
    """End the worker processes of all threads of this process."""
    while _LANES:
        _LANES.popitem()[1].__exit__()
