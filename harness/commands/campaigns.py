"""The campaigns of one command: each engine has a campaign with its own worker processes, all at the same time."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from swarden.harness.commands.console import ERR, progress
from swarden.harness.commands.events import EventLines
from swarden.harness.commands.progress import ProgressDisplay
from swarden.harness.core.changes import fixes_of
from swarden.harness.core.fingerprint import slug
from swarden.harness.core.mutant_file import mutant_of
from swarden.harness.core.registry import target_of
from swarden.harness.search.campaign import Plan
from swarden.harness.search.driving import driving
from swarden.harness.search.outcome import Outcome
from swarden.harness.search.process import prepare_process
from swarden.harness.search.result import Finding
from swarden.harness.search.workers import WorkerGroup, interruptible

END = object()


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
def ended_campaigns(
    outcomes: Sequence[Outcome], lines: EventLines, *, step_seconds: float, shrink_seconds: float
) -> Iterator[None]:
    """Run all campaigns at the same time, to their outcomes; a worker without an engine step for so long is killed.

    The first SIGINT or SIGTERM interrupts the campaigns that have not ended, but not the body, which prints the
    verdict.
    """

    def on_finding(finding: Finding) -> None:
        lines.write("finding", engine=finding.engine, **finding.figures())

    prepare_process()
    bar, groups = progress(), list[WorkerGroup]()
    for plan in (one.plan for one in outcomes):
        on_progress = ProgressDisplay(plan, bar, lines).update
        groups.append(WorkerGroup(plan.workers, plan.out, hang_seconds=step_seconds, on_progress=on_progress))
    with interruptible(groups):
        try:
            with bar, ExitStack() as stack:
                for group in groups:
                    stack.enter_context(group)
                _take_turns(
                    driving(outcome, group, shrink_seconds=shrink_seconds, on_finding=on_finding)
                    for outcome, group in zip(outcomes, groups, strict=True)
                )
        except KeyboardInterrupt:
            folders = ", ".join(str(one.plan.out) for one in outcomes)
            ERR.print(f"swarden: interrupted; findings not shrunk yet are *.unshrunk.oplog in {folders}", markup=False)
            raise
        yield


def _take_turns(iterators: Iterable[Iterator[None]]) -> None:
    """Exhaust all iterators, one element of each in turn."""
    waiting = list(iterators)
    while waiting:
        waiting = [one for one in waiting if next(one, END) is not END]
