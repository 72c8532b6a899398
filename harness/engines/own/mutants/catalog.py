"""The catalogue of known bugs by number: planted, waiting, excluded by design, or detected only by the oracle.

The rows are the module-level values of all modules of this package.
"""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from harness.core.errors import UsageError
from harness.core.mutant import Mutant
from harness.mutants.unplanted import Excluded, ForTheOracle, Row, Waiting


def collected() -> tuple[Row, ...]:
    """The rows of all modules of this package: published bugs (B), then our own (S), by number."""
    rows: dict[str, Row] = {}
    for found in iter_modules([str(Path(__file__).parent)], f"{__package__}."):
        if found.name != __name__:
            for value in vars(import_module(found.name)).values():
                if isinstance(value, Row):
                    assert rows.setdefault(value.id, value) is value, f"{value.id} has two rows"
    return tuple(sorted(rows.values(), key=_place))


def _place(row: Row) -> tuple[str, int]:
    number = re.fullmatch(r"([BS])(\d+)", row.id)
    assert number, f"{row.id!r} is not B or S and a number"
    return number[1], int(number[2])


ROWS = collected()
CATALOG = tuple(row for row in ROWS if isinstance(row, Mutant))
BY_ID = {mutant.id: mutant for mutant in CATALOG}


def mutant_of_catalog(name: str) -> Mutant:
    """The mutant of that id; raises UsageError with the reason if there is none, or it cannot be planted."""
    row = next((row for row in ROWS if row.id == name), None)
    if isinstance(row, Mutant):
        return row
    if isinstance(row, Waiting):
        why = f"not planted, it waits for {row.capability}"
    elif isinstance(row, ForTheOracle):
        why = f"not hunted, {row.detected_by} detects it"
    elif isinstance(row, Excluded):
        why = "not planted, excluded by design"
    else:
        why = "not in the catalogue, nor in a file that SWARDEN_MUTANTS names"
    raise UsageError(f"mutant {name}: {why}; see 'swarden mutants'")
