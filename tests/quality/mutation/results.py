"""The results of a sample of mutations: a file with one line per trial, and their summary."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from swarden.harness.core.files import opened, read_whole, write_whole
from swarden.harness.core.limits import MAX_ARCHIVE_BYTES
from tests.quality.mutation.equivalent import why_equivalent
from tests.quality.mutation.mutation import Mutation
from tests.quality.mutation.trial import Trial


@dataclass(frozen=True, slots=True)
class Conditions:
    """The build, the seed, the size of the corpus and the CPU seconds of a trial."""

    build: str
    seed: int
    runs: int
    seconds: float


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A trial as a line of the file; a trial with equal conditions is not repeated.

    `killed_by` is None for a survivor; `equivalent` is the reason for which the mutation is harmless, or None.
    """

    id: str
    path: str
    place: str
    line: int
    operator: str
    diff: str
    killed_by: str | None
    equivalent: str | None
    conditions: Conditions
    figures: dict[str, Any]


class Results:
    """The trials of one file with these conditions; trials with other conditions and a torn last line are skipped."""

    def __init__(self, path: Path, conditions: Conditions) -> None:
        self.path = path
        self.conditions = conditions
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = read_whole(path, most=MAX_ARCHIVE_BYTES).splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        if whole != lines:
            write_whole(path, b"".join(whole))
        known = [msgspec.json.decode(line, type=Tried) for line in whole]
        self._tried = {trial.id: trial for trial in known if trial.conditions == conditions}

    def of(self, mutations: Iterable[Mutation]) -> list[Tried]:
        """The results of a sample in its order, with the current reasons for equivalence."""
        return [
            msgspec.structs.replace(self._tried[one.id], equivalent=why_equivalent(one))
            for one in mutations
            if one.id in self._tried
        ]

    def left(self, mutations: Iterable[Mutation]) -> list[Mutation]:
        """The mutations without a result."""
        return [mutation for mutation in mutations if mutation.id not in self._tried]

    def add(self, trial: Trial) -> Tried:
        """Append the result of a trial to the file."""
        mutation = trial.mutation
        tried = Tried(
            id=mutation.id,
            path=mutation.path,
            place=mutation.place,
            line=mutation.line,
            operator=mutation.operator,
            diff=mutation.diff,
            killed_by=trial.killed_by,
            equivalent=why_equivalent(mutation),
            conditions=self.conditions,
            figures=trial.figures,
        )
        with opened(self.path, "ab") as file:
            file.write(msgspec.json.encode(tried) + b"\n")
        self._tried[tried.id] = tried
        return tried


def survivors(tried: Sequence[Tried]) -> list[Tried]:
    """The mutations that were not killed and are not equivalent."""
    return [trial for trial in tried if trial.killed_by is None and trial.equivalent is None]


def killed_share(tried: Sequence[Tried]) -> float:
    """The share of killed mutations among those that are not equivalent."""
    killed = sum(trial.killed_by is not None for trial in tried)
    return killed / max(1, killed + len(survivors(tried)))


def summary(tried: Sequence[Tried]) -> dict[str, Any]:
    """The figures for scripts: of all mutations, of each folder, and the survivors with their diffs."""
    folders = sorted({one.path.rpartition("/")[0] for one in tried})
    return _counts(tried) | {
        "folders": {folder: _counts([one for one in tried if one.path.startswith(f"{folder}/")]) for folder in folders},
        "survivors": [
            {"id": one.id, "place": f"{one.path}:{one.line} {one.place}", "diff": one.diff.splitlines()}
            for one in survivors(tried)
        ],
    }


def _counts(tried: Sequence[Tried]) -> dict[str, Any]:
    killed = sum(trial.killed_by is not None for trial in tried)
    return {
        "mutations": len(tried),
        "killed": killed,
        "survived": len(survivors(tried)),
        "equivalent": len(tried) - killed - len(survivors(tried)),
        "killed_share": round(killed_share(tried), 3),
    }
