"""Trials of mutations: each is loaded in its own process, and the recorded traffic is run on it."""

import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from swarden.harness.core.fingerprint import fingerprint_of_error
from swarden.harness.search.jobs import JobDeath, run_jobs
from tests.quality.mutation.attack import KeptRuns
from tests.quality.mutation.mutation import Mutation

PACKAGE = "swarden.engine_under_test"
SPARE_BYTES = 2 << 30  # the memory that a trial may allocate, so that an endless list ends
STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutation; `killed_by` is a fingerprint, STUCK or the death of its process, and None if it survived.

    After a death the figures have the op-log of its run.
    """

    mutation: Mutation
    killed_by: str | None
    figures: dict[str, Any]


def trials(
    mutations: Sequence[Mutation], kept: Sequence[KeptRuns], *, seconds: float, workers: int, out: Path
) -> Iterator[Trial]:
    """Yield the trial of each mutation as it ends; `workers` run at a time, each for at most `seconds` of CPU.

    The op-logs of runs that hang or crash are kept in the folder `out`.
    """
    out.mkdir(parents=True, exist_ok=True)
    work = partial(_work, kept=kept, seconds=seconds, out=out)
    for mutation, ended in run_jobs(mutations, work, workers=workers):
        if isinstance(ended, JobDeath):
            yield Trial(mutation, STUCK if ended.has_hung else str(ended), {"oplog": str(_running(mutation, out))})
        else:
            yield Trial(mutation, ended.pop("found"), ended)


def _running(mutation: Mutation, out: Path) -> Path:
    return out / f"mutation-{mutation.id}.oplog"


def _work(mutation: Mutation, kept: Sequence[KeptRuns], seconds: float, out: Path) -> dict[str, Any]:
    """Make a trial in its process: unload our packages, load the mutated module, run the traffic, return the result."""
    limit = _mapped_bytes() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in [name for name in sys.modules if name.split(".")[0] in ("swarden", "tests")]:
        del sys.modules[name]
    try:
        mutation.plant()
        attack = import_module("tests.quality.mutation.attack").attack
        result: dict[str, Any] = attack(kept, seconds=seconds, running=_running(mutation, out))
    except Exception as error:  # the engine cannot be imported or built, or its state cannot be captured
        return {"found": fingerprint_of_error(error.__cause__ or error, PACKAGE)}
    return result


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()
