"""One mutation on trial: planted in a process of its own, and attacked with recorded random traffic."""

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from harness.core.fingerprint import fingerprint_of_error
from harness.mutants.generic.mutation import Mutation
from harness.search.jobs import JobDeath, run_jobs

PACKAGE = "engine_under_test"
OWN_PACKAGES = ("engine_under_test", "fakes", "harness", "invariants")
SPARE_BYTES = 2 << 30  # beyond what a process maps when its trial begins: an endless list ends there
STUCK = "stuck"

Logs = Mapping[str, Sequence[bytes]]  # op-logs as files have them, by machine


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutation, and what killed it: a fingerprint, or STUCK; None where nothing did."""

    mutation: Mutation
    killed_by: str | None
    figures: dict[str, Any]


def trials(mutations: Sequence[Mutation], logs: Logs, *, seconds: float, workers: int) -> Iterator[Trial]:
    """Every mutation's trial, as they end; `workers` at a time, each for at most `seconds` of CPU."""
    for mutation, told in run_jobs(mutations, partial(_work, logs=logs, seconds=seconds), workers=workers):
        if isinstance(told, JobDeath):
            yield Trial(mutation, STUCK if told.has_hung else str(told), {})
        else:
            yield Trial(mutation, told.pop("found"), told)


def _work(mutation: Mutation, logs: Logs, seconds: float) -> dict[str, Any]:
    """In the process of a trial: forget the healthy engine and every module that knows it, plant, attack, tell."""
    limit = _mapped_bytes() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in [name for name in sys.modules if name.split(".")[0] in OWN_PACKAGES]:
        del sys.modules[name]
    try:
        mutation.plant()
        told: dict[str, Any] = import_module("harness.mutants.generic.attack").attack(
            mutation.part, logs, seconds=seconds
        )
    except Exception as error:  # an engine that cannot be built, or whose pages cannot be looked at
        return {"found": fingerprint_of_error(error.__cause__ or error, PACKAGE)}
    return told


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
