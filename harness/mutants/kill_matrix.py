"""The kill matrix: which invariant tells of which bug, found by replaying the bugs' op-logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.mutant import Mutant
from harness.core.oplog import OpLog
from harness.mutants.unplanted import Excluded, ForTheOracle, Row, Waiting
from harness.mutants.verdict import told_by
from invariants.catalog import ALL

TOLD, CASE, SILENT = "#", "c", "."
HEAD = """# Kill matrix

Which invariant tells of which planted bug. `swarden mutants matrix` writes this page: it plants each bug and replays
its op-log (`tests/quality/oplogs/`) up to the first transition in which anything is wrong; whoever speaks there has a
mark. It does not show who would have spoken later. A test holds the page to the op-logs.
"""


@dataclass(frozen=True)
class KillMatrix:
    """By bug, who tells of it: of a planted one by its op-log, of an excluded one by its doctored case."""

    rows: Sequence[Row]
    told: Mapping[str, Sequence[str]]

    @property
    def speakers(self) -> list[str]:
        """The rows: all invariants in the order of their catalogue, then the errors that speak."""
        names = [invariant.name for invariant in ALL.invariants]
        others = sorted({name for told in self.told.values() for name in told} - set(names))
        return names + others

    @property
    def mutants(self) -> list[str]:
        """The columns."""
        return list(self.told)

    def told_of_by(self, speaker: str) -> list[str]:
        return [name for name, told in self.told.items() if speaker in told]


def matrix_of(rows: Sequence[Row], oplogs: Path) -> KillMatrix:
    """The matrix of all bugs that are planted or excluded; raises where a planted one has no op-log in the folder."""
    told: dict[str, Sequence[str]] = {}
    for row in rows:
        if isinstance(row, Mutant):
            told[row.id] = told_by(row, OpLog.load(oplogs / f"{row.id}.oplog"))
        elif isinstance(row, Excluded):
            told[row.id] = [row.invariant]
    return KillMatrix(rows, told)


def page(matrix: KillMatrix) -> str:
    """The matrix as a page to read: the marks, who tells of which, and what is not planted."""
    by_matrix = [_marks(matrix), _by_invariant(matrix), _by_mutant(matrix)]
    return "\n".join([HEAD, *by_matrix, _for_the_oracle(matrix.rows), _excluded(matrix.rows), _waiting(matrix.rows)])


def _marks(matrix: KillMatrix) -> str:
    """A row an invariant, a column a bug, its number from top to bottom."""
    names, rows = matrix.mutants, matrix.speakers
    excluded = {row.id for row in matrix.rows if isinstance(row, Excluded)}
    width, height = max(map(len, rows)), max(map(len, names))
    lines = [" " * (width + 1) + "".join(name.ljust(height)[line] for name in names).rstrip() for line in range(height)]
    for row in rows:
        hits = set(matrix.told_of_by(row))
        marks = [(CASE if name in excluded else TOLD) if name in hits else SILENT for name in names]
        lines.append(f"{row.ljust(width)} {''.join(marks)}")
    legend = f"`{TOLD}` tells of the planted bug, `{CASE}` tells of it in a doctored case of another engine's state.\n"
    return "\n".join(["```", *lines, "```", "", legend])


def _by_invariant(matrix: KillMatrix) -> str:
    lines = ["## By invariant", "", "| invariant | tells of |", "| --- | --- |"]
    lines += [f"| {row} | {', '.join(matrix.told_of_by(row))} |" for row in matrix.speakers]
    return "\n".join([*lines, ""])


def _by_mutant(matrix: KillMatrix) -> str:
    lines = ["## By bug", "", "| bug | where, and what it was | told by |", "| --- | --- | --- |"]
    for row in matrix.rows:
        if isinstance(row, Mutant):
            where = f"{row.source} ({', beside '.join(['checker', row.overlooks.id])})" if row.overlooks else row.source
            lines.append(f"| {row.id} | {where} | {', '.join(matrix.told[row.id])} |")
    return "\n".join([*lines, ""])


def _for_the_oracle(rows: Sequence[Row]) -> str:
    lines = ["## For the oracle", "", "| bug | where, and what it was | told by |", "| --- | --- | --- |"]
    lines += [f"| {row.id} | {row.source} | {row.told_by} |" for row in rows if isinstance(row, ForTheOracle)]
    return "\n".join([*lines, ""])


def _excluded(rows: Sequence[Row]) -> str:
    lines = [
        "## Excluded by design",
        "",
        "| bug | where, and what it was | why not here | case |",
        "| --- | --- | --- | --- |",
    ]
    for row in rows:
        if isinstance(row, Excluded):
            lines.append(f"| {row.id} | {row.source} | {row.because} | {row.invariant}-{row.case} |")
    return "\n".join([*lines, ""])


def _waiting(rows: Sequence[Row]) -> str:
    lines = ["## Waiting", "", "| bug | where, and what it was | waits for |", "| --- | --- | --- |"]
    lines += [f"| {row.id} | {row.source} | {row.capability} |" for row in rows if isinstance(row, Waiting)]
    return "\n".join([*lines, ""])
