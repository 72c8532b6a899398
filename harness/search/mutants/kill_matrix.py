"""The kill matrix: which invariant detects which bug, from replays of the bugs' op-logs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

from swarden.harness.core.admission import load_log
from swarden.harness.core.fingerprint import law_of
from swarden.harness.core.mutant import Mutant
from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import OWN
from swarden.harness.core.replay import run_log
from swarden.harness.search.mutants.unplanted import Bug, DetectedByTest, Excluded
from swarden.invariants.catalog import ALL

ORDER = {invariant.name: index for index, invariant in enumerate(ALL.invariants)}
DETECTED, CASE, UNDETECTED = "#", "c", "."
Row = tuple[str, ...]
BUG = ("bug", "source and description")  # the heads of the first columns
HEAD = """# Kill matrix

Which invariant detects which planted bug. `swarden mutants matrix` writes this page: it plants each bug and replays
its op-log up to the first transition with a violation. Each invariant that is violated there has a mark; later
violations are not shown. A checker bug is planted beside the bug that it overlooks: its marks are the invariants that
no longer detect that bug.
"""


@dataclass(frozen=True)
class KillMatrix:
    """The catalogue, and the laws that detect each bug: planted bugs in their op-logs, excluded bugs in their cases."""

    bugs: Sequence[Bug]
    laws_by_mutant: Mapping[str, Sequence[str]]

    @property
    def laws(self) -> list[str]:
        """The rows of the matrix: the invariants that detect a bug, in catalogue order, then the errors by name."""
        detecting = {name for laws in self.laws_by_mutant.values() for name in laws}
        names = [invariant.name for invariant in ALL.invariants]
        return [name for name in names if name in detecting] + sorted(detecting - set(names))

    @property
    def mutants(self) -> list[str]:
        """The columns of the matrix: the ids of the planted and the excluded bugs."""
        return list(self.laws_by_mutant)

    def mutants_detected_by(self, law: str) -> list[str]:
        return [name for name, laws in self.laws_by_mutant.items() if law in laws]


def matrix_of(bugs: Sequence[Bug], oplogs: Path, engine: str = OWN) -> KillMatrix:
    """The matrix of all planted or excluded bugs of an engine; raises if a planted bug has no op-log in the folder."""
    laws_by_mutant: dict[str, Sequence[str]] = {}
    for bug in bugs:
        if isinstance(bug, Mutant):
            laws_by_mutant[bug.id] = detecting_laws(bug, load_log(oplogs / f"{bug.id}.oplog", engine=engine))
        elif isinstance(bug, Excluded):
            laws_by_mutant[bug.id] = [bug.invariant]
    return KillMatrix(bugs, laws_by_mutant)


def page(matrix: KillMatrix) -> str:
    """The matrix as a Markdown page: the matrix itself, tables by invariant and by bug, and the bugs not planted."""
    return "\n".join([HEAD, _marks(matrix), *starmap(_section, _tables(matrix))])


def data(matrix: KillMatrix) -> str:
    """A JSON object of the laws that detect each bug, with a line for each."""
    lines = [f"{json.dumps(name)}: {json.dumps(list(laws))}" for name, laws in matrix.laws_by_mutant.items()]
    return "\n".join(["{", ",\n".join(lines), "}", ""])


def _marks(matrix: KillMatrix) -> str:
    """A row for each invariant, a column for each bug; the id of the bug is written from top to bottom."""
    names, laws = matrix.mutants, matrix.laws
    excluded = {bug.id for bug in matrix.bugs if isinstance(bug, Excluded)}
    width, height = max(map(len, laws)), max(map(len, names))
    lines = [" " * (width + 1) + "".join(name.ljust(height)[line] for name in names).rstrip() for line in range(height)]
    for law in laws:
        hits = set(matrix.mutants_detected_by(law))
        marks = [(CASE if name in excluded else DETECTED) if name in hits else UNDETECTED for name in names]
        lines.append(f"{law.ljust(width)} {''.join(marks)}")
    legend = (
        f"`{DETECTED}`: the invariant detects the planted bug; "
        f"`{CASE}`: the invariant detects the bug in a hand-made state of another engine.\n"
    )
    return "\n".join(["```", *lines, "```", "", legend])


def _tables(matrix: KillMatrix) -> Iterator[tuple[str, Row, Sequence[Row]]]:
    """The title, the heads and the rows of each section."""
    laws = [(law, ", ".join(matrix.mutants_detected_by(law))) for law in matrix.laws]
    planted, tested, excluded = list[Row](), list[Row](), list[Row]()
    for bug in matrix.bugs:
        match bug:
            case Mutant():
                hides = f" (a checker bug, which overlooks {bug.overlooks.id})" if bug.overlooks else ""
                planted.append((bug.id, f"{bug.source}{hides}", ", ".join(matrix.laws_by_mutant[bug.id])))
            case DetectedByTest():
                tested.append((bug.id, bug.source, bug.detected_by))
            case Excluded():
                excluded.append((bug.id, bug.source, bug.because, f"{bug.invariant}-{bug.case}"))
    yield "By invariant", ("invariant", "detects"), laws
    yield "By bug", (*BUG, "detected by"), planted
    yield "Detected by a test only", (*BUG, "detected by"), tested
    yield "Excluded by design", (*BUG, "why it is impossible here", "case"), excluded


def _section(title: str, heads: Row, rows: Sequence[Row]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join([f"## {title}", "", *lines, ""])


def detecting_laws(mutant: Mutant, log: OpLog) -> list[str]:
    """The invariants, in catalogue order, and the errors that detect a mutant when `log` is run with it.

    For a checker bug that hides another mutant: the laws that no longer detect that mutant.
    """
    laws = violated_laws(log, mutant.id)
    if mutant.overlooks is None:
        return laws
    return [name for name in violated_laws(log, mutant.overlooks.id) if name not in laws]


def violated_laws(log: OpLog, mutant: str | None) -> list[str]:
    """The laws violated at the first failure of a log, with this mutant instead of its own; empty if the log passes."""
    failure = run_log(log.with_header(mutant=mutant)).failure
    laws = {*map(law_of, failure.fingerprints)} if failure is not None else ()
    return sorted(laws, key=lambda name: ORDER.get(name, len(ORDER)))
