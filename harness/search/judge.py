"""The judge of logs: how a log ends on a release, in a process of its own."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from swarden.harness.core.admission import load_log, parse_log
from swarden.harness.core.errors import EngineGone, UsageError
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.process import run_to_end
from swarden.harness.core.registry import target_for
from swarden.harness.core.releases import parsed
from swarden.harness.core.replay import Replays, TruncatedLog, Verdict, not_run, verdict_on
from swarden.harness.core.target import Target
from swarden.harness.search.result import Finding
from swarden.harness.search.tasks import Block, known_bugs_of
from swarden.harness.search.workers import WorkerGroup

FAILS, PASSES = "fails", "passes"
OTHERWISE = f"{FAILS} with "  # other fingerprints
STEP_SECONDS = 60.0  # until a replay without an engine step is taken for hung


class Rule(NamedTuple):
    """How a log is run and judged: the `names` of the failure that it expects, by default its own.

    Unless it `needs_fixes`, a log whose fixes do not fit on a release is run without them.  With `by_law` a failure by
    the same law or error is the same one, wherever its code is: releases move their code.  `runs`, `with_story` and
    `block` are those of `WorkerGroup.replay`.  With `finds_cures` the verdict on a failure has the known bugs whose
    fixes cure it; there are none if the process dies with a fix.
    """

    names: Sequence[str] = ()
    needs_fixes: bool = True
    by_law: bool = False
    runs: int = 1
    with_story: bool = False
    block: Block = nullcontext
    finds_cures: bool = False


ITS_OWN, BY_LAW = Rule(), Rule(by_law=True)


def judging(
    group: WorkerGroup, log: OpLog | Path, release: str, rule: Rule = ITS_OWN
) -> Generator[None, None, Replays]:
    """The verdict on a log, or on a file, which is run on a release.

    A log of an engine that is not repeatable has a rate: it fails if one of its runs does.
    """
    try:
        log = load_log(log, engine=release) if isinstance(log, Path) else log
        expected = rule.names[0] if rule.names else log.header.expected
        own = log if rule.runs > 1 and not rule.names else log.with_header(expected=expected)  # with digests
        own = parse_log(own.to_bytes(), Path("its op-log"), engine=release)
        replays = yield from group.replaying(own, rule.runs, with_story=rule.with_story, block=rule.block)
    except (TruncatedLog, EngineGone) as error:
        return not_run(str(error))
    except UsageError as error:
        if rule.needs_fixes or isinstance(log, Path) or not log.header.fixes:
            return not_run(str(error))
        bare = log.with_header(fixes=())
        return (yield from judging(group, bare, release, rule))
    if rule.finds_cures and replays.failures:
        cure = yield from group.calling(known_bugs_of, own)
        replays = replace(replays, known=cure if isinstance(cure, str) else "")
    has_rate = replays.verdict is Verdict.FLAKY and not target_for(own.header).is_repeatable
    if replays.verdict is not Verdict.CHANGED and not has_rate:
        return replays
    fingerprints = rule.names or ([expected] if expected else [])
    return replace(replays, verdict=verdict_on(replays.fingerprints, fingerprints, by_law=rule.by_law))


def judge(group: WorkerGroup, log: OpLog | Path, release: str, rule: Rule = ITS_OWN) -> Replays:
    """The verdict of `judging`, without turns for other campaigns."""
    return run_to_end(judging(group, log, release, rule))


def judge_alone(log: OpLog | Path, release: str, rule: Rule = ITS_OWN) -> Replays:
    """The verdict of a worker that is for this release alone."""
    with worker_alone() as group:
        return judge(group, log, release, rule)


def worker_alone() -> WorkerGroup:
    """A worker process for logs on one release, without a folder."""
    return WorkerGroup(1, None, hang_seconds=STEP_SECONDS)


def end_of(replays: Replays) -> str:
    """How a log has ended: PASSES, FAILS as it expects, OTHERWISE with its names, or why it cannot be run."""
    if replays.verdict is Verdict.ERROR:
        return replays.diverged
    if replays.verdict is Verdict.CHANGED:
        return f"{OTHERWISE}{', '.join(replays.fingerprints)}"
    return PASSES if replays.verdict is Verdict.FIXED else FAILS


def base_of(target: Target) -> str:
    """The installed release that is nearest to a checkout, not newer if there is one; "" for a release."""
    if target.releases is None or target.sources is None or target.sources.is_release:
        return ""
    installed = target.releases.installed()
    try:
        older = [version for version in installed if parsed(version) <= parsed(target.version())]
    except UsageError:  # its version has another form
        older = installed
    return (older or installed[:1] or [""])[-1]


def beside(findings: list[Finding], version: str, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Give each finding of a checkout how its log ends on a release, in place; those that pass there come first."""
    ranks = {f"{PASSES} on {version}": 0, f"{FAILS} on {version}, too": 2}
    with worker_alone() as group:
        for index, finding in enumerate(findings):
            if finding.path is not None and not finding.died and not is_stopped():
                release = f"{finding.log.header.engine}=={version}"
                rule = Rule(finding.fingerprints, needs_fixes=False)
                end = end_of((yield from judging(group, finding.log, release, rule)))
                on_base = f"{end} on {version}" + (", too" if end == FAILS else "")
                findings[index] = finding.changed(on_base=on_base)
            yield
    findings.sort(key=lambda finding: ranks.get(finding.on_base, 1))
