"""Random runs of both machines, recorded on the healthy engine, to be repeated on mutated engines."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from swarden.harness.core.files import write_whole
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import OWN
from swarden.harness.search.campaign import Plan, Worker
from swarden.harness.search.corpus import CorpusPart, rarest_first
from swarden.harness.search.traffic.profiles import PROFILES
from tests.quality.mutation.attack import KeptRuns


class Source(NamedTuple):
    """A kind of runs: a machine and the model of its engines; `share` runs are made per requested run."""

    machine: str
    share: float
    model: str = ""


SOURCES: Sequence[Source] = (Source("engine", 1.0), Source("engine", 0.1, model="tiny-gemma2"), Source("pd", 0.2))


class Corpus(msgspec.Struct):
    """The kept runs by source; `num_failed` runs are left out: they fail on the healthy engine too."""

    kept: list[KeptRuns] = []
    num_failed: int = 0


def record(*, runs: int, seed: int) -> Corpus:
    """Make about `runs` runs of one engine and runs of the other sources; keep those that reach rare states."""
    corpus = Corpus()
    for machine, share, model in SOURCES:
        plan = Plan(
            engine=OWN,
            profile=PROFILES["default"],
            seed=seed,
            max_runs=max(1, round(runs * share)),
            machine=machine,
            model=model,
            part=CorpusPart(),
        )
        result = Worker(plan, lambda _: None).work()
        corpus.kept.append(KeptRuns(machine, [log.to_bytes() for log in _from_both_ends(rarest_first(result.rare))]))
        corpus.num_failed += result.tallies.failed_runs
    return corpus


def _from_both_ends(logs: Sequence[OpLog]) -> list[OpLog]:
    """The first, the last, the second, the last but one, and so on.

    The first logs have rare features in few steps.  The last ones are long, and some states need many steps.
    """
    return [logs[-1 - place // 2 if place % 2 else place // 2] for place in range(len(logs))]


def recorded(path: Path, *, runs: int, seed: int) -> Corpus:
    """The corpus in the file `path`; if there is none, a new corpus is recorded and written there."""
    if path.exists():
        return msgspec.msgpack.decode(path.read_bytes(), type=Corpus)
    corpus = record(runs=runs, seed=seed)
    write_whole(path, msgspec.msgpack.encode(corpus))
    return corpus
