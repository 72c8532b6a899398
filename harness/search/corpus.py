"""A corpus: a folder of op-logs of healthy runs that reach rare states, which a later campaign runs first.

The name of a file is its rank, the rarest first, and the hash of its content: 0007-3f2a90c1b2d4.oplog.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from swarden.harness.core.admission import load_log
from swarden.harness.core.changed_code import ChangedLine
from swarden.harness.core.errors import UsageError
from swarden.harness.core.files import read_whole, write_whole
from swarden.harness.core.limits import MAX_CORPUS_BYTES, MAX_OPLOG_BYTES
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Drain, Op
from swarden.harness.search.reach import ReachSteering

CROSSED, OTHER_CONFIG = 0.5, 0.25  # shares of the changed logs
MOST_CHANGES = 4  # of one log, beside the crossing
MOST_OPS = 8  # that one change leaves out or repeats
MOST = 2_048  # logs in a folder; the last ones are dropped
PER_BATCH = 8  # logs that a worker runs before each batch of random runs
CHANGED, CHANGED_PER_BATCH = "changed", 3  # and as many changed logs
SHORT = 8  # steps; a shorter log ranks as if it had so many
HASH_LEN = 12  # hex digits


class RareRun(msgspec.Struct, frozen=True):
    """A healthy run that reached something new: its log, its features, and the number of its engine steps."""

    log: OpLog
    features: frozenset[int]
    steps: int


class CorpusLog(NamedTuple):
    """A log of a corpus, and the name of its file."""

    name: str
    log: OpLog


class CorpusPart(NamedTuple):
    """The part of a corpus that one worker runs in its batches, beginning with the batch `first_batch`."""

    logs: Sequence[CorpusLog] = ()
    first_batch: int = 0


class Share:
    """The part of a corpus that a worker runs, and the features that its runs have had.

    `logs` are run before the random runs of the current batch.  `running` is the name of the log that is run now, and
    "" in a random run.  `reach` leads the runs to a change.
    """

    def __init__(self, part: CorpusPart, change: Sequence[ChangedLine] = ()) -> None:
        self.reach = ReachSteering(change)
        self.running = ""
        self.logs: Sequence[CorpusLog] = ()
        self._part = part
        self._features: set[int] = set()

    def begin_batch(self, ordinal: int, seed: int) -> None:
        """Begin the batch with this ordinal and seed, with the next logs and some changed ones."""
        first = (ordinal - self._part.first_batch) * PER_BATCH
        logs = [*(log.log for log in self._part.logs), *self.reach.near]
        new = [CorpusLog(CHANGED, log) for log in changed(logs, seed=seed, count=CHANGED_PER_BATCH)]
        self.logs = [*self._part.logs[first : first + PER_BATCH], *new]

    def has_new(self, features: frozenset[int]) -> bool:
        """Whether one of these features is new, that is, no earlier run had it."""
        is_new = not features <= self._features
        self._features |= features
        return is_new


def files_of(folder: Path) -> list[Path]:
    """The files of a corpus in their order; [] if there is no folder.  Raises UsageError if they are too large."""
    sizes: dict[Path, int] = {}
    for path in sorted(folder.glob("*.oplog")):
        with suppress(FileNotFoundError):  # another campaign has replaced it
            sizes[path] = path.stat().st_size
    if (size := sum(sizes.values())) > MAX_CORPUS_BYTES:
        raise UsageError(f"--corpus: {folder} has op-logs of {size} bytes; want at most {MAX_CORPUS_BYTES}")
    return list(sizes)


def digest_of(folder: Path) -> str:
    """The hash of the content of a corpus; raises UsageError if it cannot be read."""
    digest = hashlib.sha256()
    for path in files_of(folder):
        try:
            digest.update(_content(path))
        except OSError as error:
            raise UsageError(f"--corpus: {path} cannot be read: {error.strerror}; move it away") from error
    return digest.hexdigest()[:HASH_LEN]


def logs_of(folder: Path, engine: str, machine: str | None = None) -> list[CorpusLog]:
    """The logs for an engine, and for one of its machines if it is given; raises OpLogError if one cannot be read."""
    logs = [CorpusLog(path.name, load_log(path, engine=engine, inside=folder)) for path in files_of(folder)]
    return [log for log in logs if machine in (None, log.log.header.machine)]


def rarest_first(rare: Iterable[RareRun]) -> list[OpLog]:
    """As few logs as together have all features of these runs; many rare features in few steps come first."""
    runs = sorted(rare, key=lambda run: (run.steps, len(run.log.ops)))
    counts = Counter(feature for run in runs for feature in run.features)
    chosen: dict[int, RareRun] = {}
    covered: set[int] = set()
    shortest: dict[int, int] = {}
    for index, run in enumerate(runs):
        for feature in run.features:
            shortest.setdefault(feature, index)
    for feature in sorted(shortest, key=lambda feature: (counts[feature], feature)):
        if feature not in covered:
            index = shortest[feature]
            chosen[index] = runs[index]
            covered |= runs[index].features

    def rarity(run: RareRun) -> float:
        return sum(1 / counts[feature] for feature in sorted(run.features)) / max(SHORT, run.steps)

    return [run.log for run in sorted(chosen.values(), key=rarity, reverse=True)]


def write(folder: Path, logs: Sequence[OpLog], *, replaced: Collection[str]) -> None:
    """Write these logs, in this order, in front of those that the corpus has; files named in `replaced` are removed.

    The folder keeps the first MOST logs.  A file that another campaign adds meanwhile stays; one that it removes is
    skipped.  Raises UsageError if the folder cannot be written.
    """
    old = files_of(folder)
    contents = [_bare(log).to_bytes() for log in logs]
    try:
        for path in old:
            if path.name not in replaced:
                with suppress(FileNotFoundError):  # another campaign has replaced it
                    contents.append(_content(path))
        names = {
            f"{rank:04d}-{hashlib.sha256(content).hexdigest()[:HASH_LEN]}.oplog": content
            for rank, content in enumerate(list(dict.fromkeys(contents))[:MOST])
        }
        for name, content in names.items():
            write_whole(folder / name, content, inside=folder)
        for path in old:
            if path.name not in names:
                with suppress(FileNotFoundError):
                    path.unlink()
    except OSError as error:
        raise UsageError(f"--corpus: {folder} cannot be written: {error.strerror}; name another folder") from error


def _content(path: Path) -> bytes:
    return read_whole(path, most=MAX_OPLOG_BYTES, inside=path.parent)


def _bare(log: OpLog) -> OpLog:
    """The log without a final drain and without fields of one run or build, so that equal runs have equal files."""
    header, ops = log.header, log.ops
    while ops and isinstance(ops[-1], Drain):
        ops = ops[:-1]
    bare = Header(
        engine=header.engine, machine=header.machine, configs=header.configs, model=header.model, faults=header.faults
    )
    return OpLog(bare, ops)


def changed(logs: Sequence[OpLog], *, seed: int, count: int) -> list[OpLog]:
    """So many new logs, each of one log and another one of the same machine, no longer than the longer of both.

    Ops are left out, repeated, exchanged or taken from the other log, or both logs are crossed.
    """
    draw = random.Random(seed)
    return [_changed(draw, logs) for _ in range(count)] if logs else []


def _changed(draw: random.Random, logs: Sequence[OpLog]) -> OpLog:
    log = draw.choice(logs)
    other = draw.choice([another for another in logs if another.header.machine == log.header.machine])
    header = (other if draw.random() < OTHER_CONFIG else log).header
    ops = list(log.ops)
    if draw.random() < CROSSED:
        ops = ops[: draw.randint(0, len(ops))] + list(other.ops[draw.randint(0, len(other.ops)) :])
    for _ in range(draw.randint(1, MOST_CHANGES)):
        _change(draw, ops, other.ops)
    return OpLog(header, ops[: max(len(log.ops), len(other.ops))])


def _change(draw: random.Random, ops: list[Op], other: Sequence[Op]) -> None:
    place, source, size = draw.randint(0, len(ops)), draw.choice((ops, other)), draw.randint(1, MOST_OPS)
    start = draw.randint(0, len(source))
    match draw.randrange(3):
        case 0:
            del ops[place : place + size]
        case 1:
            ops[place:place] = source[start : start + size]
        case _:  # the arguments of another op of its kind
            ops[place : place + 1] = [
                draw.choice([other_op for other_op in source if type(other_op) is type(op)] or [op])
                for op in ops[place : place + 1]
            ]
