"""The kill matrix: which invariant detects which bug, from replays of the bugs' op-logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.mutant import Mutant
from harness.core.oplog import OpLog
from harness.mutants.unplanted import Excluded, ForTheOracle, Row, Waiting
from harness.mutants.verdict import detecting_laws
from invariants.catalog import ALL

DETECTED, CASE, UNDETECTED = "#", "c", "."
HEAD = """# Kill matrix

Which invariant detects which planted bug. `swarden mutants matrix` writes this page: it plants each bug and replays
its op-log (`tests/quality/oplogs/`) up to the first transition with a violation. Each invariant that is violated there
has a mark; later violations are not shown. A test compares the page with the op-logs.
"""


@dataclass(frozen=True)
class KillMatrix:
    """The laws that detect each bug: a planted bug in its op-log, an excluded bug in its hand-made case."""

    rows: Sequence[Row]
    laws_by_mutant: Mapping[str, Sequence[str]]

    @property
    def laws(self) -> list[str]:
        """The rows: the invariants that detect a bug, in the order of their catalogue, then the errors."""
        detecting = {name for laws in self.laws_by_mutant.values() for name in laws}
        names = [invariant.name for invariant in ALL.invariants]
        return [name for name in names if name in detecting] + sorted(detecting - set(names))

    @property
    def mutants(self) -> list[str]:
        """The columns."""
        return list(self.laws_by_mutant)

    def mutants_detected_by(self, law: str) -> list[str]:
        return [name for name, laws in self.laws_by_mutant.items() if law in laws]


def matrix_of(rows: Sequence[Row], oplogs: Path) -> KillMatrix:
    """The matrix of all planted or excluded bugs; raises if a planted bug has no op-log in the folder."""
    laws_by_mutant: dict[str, Sequence[str]] = {}
    for row in rows:
        if isinstance(row, Mutant):
            laws_by_mutant[row.id] = detecting_laws(row, OpLog.load(oplogs / f"{row.id}.oplog"))
        elif isinstance(row, Excluded):
            laws_by_mutant[row.id] = [row.invariant]
    return KillMatrix(rows, laws_by_mutant)


def page(matrix: KillMatrix) -> str:
    """The matrix as a Markdown page: marks, tables by invariant and by bug, and the bugs that are not planted."""
    by_matrix = [_marks(matrix), _by_invariant(matrix), _by_mutant(matrix)]
    return "\n".join([HEAD, *by_matrix, _for_the_oracle(matrix.rows), _excluded(matrix.rows), _waiting(matrix.rows)])


def _marks(matrix: KillMatrix) -> str:
    """A row for each invariant, a column for each bug; the id of the bug is written from top to bottom."""
    names, rows = matrix.mutants, matrix.laws
    excluded = {row.id for row in matrix.rows if isinstance(row, Excluded)}
    width, height = max(map(len, rows)), max(map(len, names))
    lines = [" " * (width + 1) + "".join(name.ljust(height)[line] for name in names).rstrip() for line in range(height)]
    for row in rows:
        hits = set(matrix.mutants_detected_by(row))
        marks = [(CASE if name in excluded else DETECTED) if name in hits else UNDETECTED for name in names]
        lines.append(f"{row.ljust(width)} {''.join(marks)}")
    legend = (
        f"`{DETECTED}`: the invariant detects the planted bug; "
        f"`{CASE}`: the invariant detects the bug in a hand-made state of another engine.\n"
    )
    return "\n".join(["```", *lines, "```", "", legend])


def _by_invariant(matrix: KillMatrix) -> str:
    lines = ["## By invariant", "", "| invariant | detects |", "| --- | --- |"]
    lines += [f"| {row} | {', '.join(matrix.mutants_detected_by(row))} |" for row in matrix.laws]
    return "\n".join([*lines, ""])


def _by_mutant(matrix: KillMatrix) -> str:
    lines = ["## By bug", "", "| bug | source and description | detected by |", "| --- | --- | --- |"]
    for row in matrix.rows:
        if isinstance(row, Mutant):
            where = f"{row.source} (checker, beside {row.overlooks.id})" if row.overlooks else row.source
            lines.append(f"| {row.id} | {where} | {', '.join(matrix.laws_by_mutant[row.id])} |")
    return "\n".join([*lines, ""])


def _for_the_oracle(rows: Sequence[Row]) -> str:
    lines = ["## For the oracle", "", "| bug | source and description | detected by |", "| --- | --- | --- |"]
    lines += [f"| {row.id} | {row.source} | {row.detected_by} |" for row in rows if isinstance(row, ForTheOracle)]
    return "\n".join([*lines, ""])


def _excluded(rows: Sequence[Row]) -> str:
    lines = [
        "## Excluded by design",
        "",
        "| bug | source and description | why it is impossible here | case |",
        "| --- | --- | --- | --- |",
    ]
    for row in rows:
        if isinstance(row, Excluded):
            lines.append(f"| {row.id} | {row.source} | {row.because} | {row.invariant}-{row.case} |")
    return "\n".join([*lines, ""])


def _waiting(rows: Sequence[Row]) -> str:
    lines = ["## Waiting", "", "| bug | source and description | waits for |", "| --- | --- | --- |"]
    lines += [f"| {row.id} | {row.source} | {row.capability} |" for row in rows if isinstance(row, Waiting)]
    return "\n".join([*lines, ""])
