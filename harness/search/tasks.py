"""The tasks of the worker processes of campaigns and nights: to make runs, to report a finding, to replay a log."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from pathlib import Path

from swarden.harness.core.changed_code import ChangedLine
from swarden.harness.core.counters import Counters
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.process import Parent
from swarden.harness.core.registry import target_for, target_of
from swarden.harness.core.replay import Replays, Verdict, repeat, run_log
from swarden.harness.core.running_log import RunningLog
from swarden.harness.core.target import Target, prepare
from swarden.harness.report.decisions import decision_tracer
from swarden.harness.report.story import story_lines
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.cures import Deaths, Trials
from swarden.harness.search.findings import Reporting
from swarden.harness.search.process import prepare_process
from swarden.harness.search.result import Finding, Result
from swarden.harness.search.shrink.shrink import ShrinkBudget
from swarden.harness.search.verification import Verifier

Block = Callable[[Target], AbstractContextManager[object]]  # such as one that changes the engine


def boot(parent: Parent, engine: str) -> None:
    """Boot an engine, so that the next task of this process need not."""
    _prepare()
    prepare(target_of(engine))
    parent.beat()


def make_runs(parent: Parent, plan: Plan) -> None:
    """Make the runs of a plan; sends a result with the time of the boot, and then a result for each run."""
    _prepare()
    running = RunningLog(parent.running)
    worker = Worker(plan, parent.send, parent.is_stopped, heartbeat=parent.beat, running=running)
    parent.send(Result(boots=[worker.boot_seconds]))
    worker.work()


def report(parent: Parent, finding: Finding, out: Path, budget: ShrinkBudget, deaths: Deaths) -> Finding:
    """Shrink a finding and write it; sends each smaller log, in a finding, and each Trial."""
    _boot(parent, finding.log)
    trials = Trials(parent.beat, parent.send, deaths)
    return Reporting(out, budget, trials, parent.is_stopped, on_smaller=parent.send).report(finding)


def replay_log(parent: Parent, log: OpLog, runs: int, with_story: bool, block: Block) -> Replays:
    """Run a log `runs` times, within a block; `with_story` asks for the story of its failure."""
    observe = _boot(parent, log)
    with block(target_for(log.header)) as counters:
        replays = repeat(log, runs, observe, tracer_of=decision_tracer if with_story else None)
    story = story_lines(log.header, replays.failure) if with_story and replays.failure is not None else []
    ran = counters.coverage.ran if isinstance(counters, Counters) else frozenset()
    replays = replace(replays, failure=None, story=tuple(map(str, story)), ran=ran)
    if replays.is_nondeterministic:
        return replace(replays, verdict=Verdict.FLAKY)
    return replace(replays, diverged="")


def known_bugs_of(parent: Parent, log: OpLog) -> str:
    """The known bugs whose fixes cure the failure of a log, as in a campaign; "" if there are none."""
    failure = run_log(log, observe=_boot(parent, log)).failure
    if failure is None:
        return ""
    verifier = Verifier(target_for(log.header), log.header.fixes, Trials(parent.beat, parent.send))
    return verifier.cause_of(failure, log).name


def following(change: Sequence[ChangedLine], _: Target) -> AbstractContextManager[Counters]:
    """A block, with its first argument: the replays have the changed lines that ran."""
    return Counters(change).planted()


def _boot(parent: Parent, log: OpLog) -> Callable[..., None]:
    """Boot the engine of a log, so that a hang in its first operation is not taken for a slow boot.

    Returns the observer of its steps.
    """
    _prepare()
    prepare(target_for(log.header))
    parent.beat()
    return lambda *_: parent.beat()


@cache
def _prepare() -> None:
    prepare_process()
