"""One mutation on trial: planted in a process of its own, and attacked with recorded random traffic."""

import resource
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from harness.fingerprint import fingerprint_of_error
from harness.mutation.mutation import Mutation

OWN_PACKAGES = ("engine_under_test", "fakes", "harness", "invariants")
SPARE_BYTES = 2 << 30  # beyond what a process maps when its trial begins: an endless list ends there
STUCK = "stuck"
DIED = "died"

Logs = Mapping[str, Sequence[bytes]]  # op-logs as files have them, by machine


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutation, and what killed it: a fingerprint, or STUCK; None where nothing did."""

    mutation: Mutation
    killed_by: str | None
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Running:
    mutation: Mutation
    process: ForkProcess
    mailbox: Connection


def trials(mutations: Sequence[Mutation], logs: Logs, *, seconds: float, workers: int) -> Iterator[Trial]:
    """Every mutation's trial, as they end; `workers` at a time, each for at most `seconds` of CPU.

    A process is forked for each, so that what is imported from elsewhere is warm.
    """
    waiting = list(mutations)[::-1]
    running: dict[int, _Running] = {}
    while waiting or running:
        while waiting and len(running) < workers:
            one = _start(waiting.pop(), logs, seconds)
            running[one.process.sentinel] = one
        for sentinel in wait(list(running)):
            assert isinstance(sentinel, int), f"{sentinel}: not one of {list(running)}"
            yield _ended(running.pop(sentinel))


def _start(mutation: Mutation, logs: Logs, seconds: float) -> _Running:
    context = get_context("fork")
    mailbox, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(mutation, logs, seconds, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Running(mutation, process, mailbox)


def _ended(one: _Running) -> Trial:
    one.process.join()
    if one.process.exitcode == -signal.SIGPROF:
        return Trial(one.mutation, STUCK, {})
    try:
        told: dict[str, Any] = one.mailbox.recv()
    except EOFError:
        return Trial(one.mutation, f"{DIED} with exit code {one.process.exitcode}", {})
    return Trial(one.mutation, told.pop("found"), told)


def _work(mutation: Mutation, logs: Logs, seconds: float, mailbox: Connection) -> None:
    """In the process of a trial: forget the healthy engine and all who know it, plant, attack, tell."""
    limit = _mapped_bytes() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in [name for name in sys.modules if name.split(".")[0] in OWN_PACKAGES]:
        del sys.modules[name]
    try:
        mutation.plant()
        told = import_module("harness.mutation.attack").attack(mutation.part, logs, seconds=seconds)
    except Exception as error:  # an engine that cannot be built, or whose pages cannot be looked at
        told = {"found": fingerprint_of_error(error)}
    mailbox.send(told)


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
