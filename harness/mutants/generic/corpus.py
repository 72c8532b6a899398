"""Random runs of all machines, recorded on the healthy engine, to be repeated on mutated engines."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.core.driver import Driver
from harness.core.files import write_whole
from harness.core.oplog import Header, OpLog
from harness.core.registry import OWN, target_of
from harness.core.replay import log_of
from harness.core.target import Target
from harness.search.campaign import batch_seed
from harness.search.machine import Listener, Machine, turns_of
from harness.search.search import search

RUNS_PER_SEARCH = 10
# The runs of each machine per requested run; more for a machine that kills more mutations.
RUN_SHARES = {"engine": 1.0, "tree": 1.0, "ledger": 0.5}


class Corpus(msgspec.Struct):
    """Op-logs by machine, in file format; `num_failed` runs are left out: they fail on the healthy engine too."""

    logs: dict[str, list[bytes]] = {}
    num_failed: int = 0


@dataclass
class Recorder(Listener):
    """Keeps the op-log of each run that passes."""

    target: Target
    corpus: Corpus = field(default_factory=Corpus)
    is_over: bool = False

    def on_op(self, driver: Driver) -> None:
        """Continue the run."""

    def on_end(self, header: Header, driver: Driver) -> None:
        if driver.failure is not None:
            self.corpus.num_failed += 1
        else:
            log = log_of(header, driver)
            self.corpus.logs.setdefault(header.machine, []).append(OpLog(log.header, log.ops).to_bytes())


def record(*, runs: int, seed: int) -> Corpus:
    """Record about `runs` runs of whole engines, half of them with swarm testing, and runs of parts by RUN_SHARES."""
    recorder = Recorder(target_of(OWN))
    for name, share in RUN_SHARES.items():
        turns = list(dict.fromkeys(turns_of(recorder.target, name)))
        for number in range(max(1, round(runs * share / RUNS_PER_SEARCH))):
            machine: type[Machine] = turns[number % len(turns)]
            search(machine, recorder, from_seed=batch_seed(seed, number), max_runs=min(runs, RUNS_PER_SEARCH))
    return recorder.corpus


def recorded(path: Path, *, runs: int, seed: int) -> Corpus:
    """The corpus in the file `path`; if there is none, a new corpus is recorded and written there."""
    if path.exists():
        return msgspec.msgpack.decode(path.read_bytes(), type=Corpus)
    corpus = record(runs=runs, seed=seed)
    write_whole(path, msgspec.msgpack.encode(corpus))
    return corpus
