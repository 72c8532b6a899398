"""Workers of one campaign, each in a process of its own."""

import multiprocessing
import queue
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

from harness.campaign import Plan, Result, Worker, merge
from harness.errors import UsageError
from harness.process import prepare_process

PATIENCE_S = 1.0  # between two looks at whether a worker is alive


class WorkerDied(UsageError):
    """A worker's process ended without a result, for want of memory for instance."""


class Progress(NamedTuple):
    """How far one worker is."""

    worker: int
    runs: int
    steps: int
    failed_runs: int


Tell = Callable[[Progress], None]


def run_campaign(plan: Plan, workers: int, tell: Tell) -> Result:
    """The merged result of `workers` processes; with one worker, of this one.

    Raises WorkerDied where a process ends before its time.
    """
    prepare_process()
    if workers == 1:
        return Worker(plan, lambda result: tell(_progress(plan, result))).work()
    context = multiprocessing.get_context("spawn")
    mailbox: Any = context.Queue()
    enough = context.Event()
    plans = [replace(plan, worker=worker, workers=workers) for worker in range(workers)]
    processes = [context.Process(target=_work, args=(one, mailbox, enough), daemon=True) for one in plans]
    for process in processes:
        process.start()
    results = _collect(mailbox, processes, tell)
    for process in processes:
        process.join()
    return merge(results)


def _collect(mailbox: Any, processes: list[SpawnProcess], tell: Tell) -> list[Result]:
    """Listen until every worker has sent its result; in the order of the workers."""
    results: dict[int, Result] = {}
    while len(results) < len(processes):
        try:
            worker, message = mailbox.get(timeout=PATIENCE_S)
        except KeyboardInterrupt:  # the workers hear it too, and send what they have
            continue
        except queue.Empty:
            for index, process in enumerate(processes):
                if index not in results and not process.is_alive():
                    raise WorkerDied(f"worker {index} ended with exit code {process.exitcode}; use fewer") from None
            continue
        if isinstance(message, Result):
            results[worker] = message
        else:
            tell(message)
    return [results[worker] for worker in sorted(results)]


def _work(plan: Plan, mailbox: Any, enough: Any) -> None:
    """One worker; where the first finding is enough, the others hear of it through `enough`."""
    prepare_process()
    worker = Worker(plan, lambda so_far: mailbox.put((plan.worker, _progress(plan, so_far))), enough.is_set)
    result = worker.work()
    if result.findings and plan.stop_on_first:
        enough.set()
    mailbox.put((plan.worker, result))


def _progress(plan: Plan, result: Result) -> Progress:
    return Progress(plan.worker, result.tallies.runs, result.tallies.steps, result.tallies.failed_runs)
