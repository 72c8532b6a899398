"""Every bug that this project knows of, by its number: planted, waiting, excluded by design, or for the oracle alone.

A row belongs to the catalogue by standing at the top of a module of this package.  Mutants of one's own stand at the
top of a Python file anywhere, under any id; SWARDEN_MUTANTS names the file, so that every process knows them.
"""

import os
import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from harness.core.errors import UsageError
from harness.engines.own import mutants
from harness.mutants.from_file import mutants_of
from harness.mutants.mutant import Mutant
from harness.mutants.unplanted import Excluded, ForTheOracle, Waiting

Row = Mutant | Waiting | Excluded | ForTheOracle


def collected() -> tuple[Row, ...]:
    """The rows of all modules of this package: those of the field (B), then our own (S), by number."""
    rows: dict[str, Row] = {}
    for found in iter_modules(mutants.__path__, f"{mutants.__name__}."):
        if found.name != __name__:
            for value in vars(import_module(found.name)).values():
                if isinstance(value, Row):
                    assert rows.setdefault(value.id, value) is value, f"{value.id} is there twice"
    return tuple(sorted(rows.values(), key=_place))


def _place(row: Row) -> tuple[str, int]:
    number = re.fullmatch(r"([BS])(\d+)", row.id)
    assert number, f"{row.id!r} is no number of this catalogue"
    return number[1], int(number[2])


ROWS = collected()
CATALOG = tuple(row for row in ROWS if isinstance(row, Mutant))
BY_ID = {mutant.id: mutant for mutant in CATALOG}


VARIABLE = "SWARDEN_MUTANTS"


def own_mutants() -> dict[str, Mutant]:
    """The mutants of the file that the environment names, by id; raises UsageError where one cannot be used."""
    path = os.environ.get(VARIABLE)
    own = mutants_of(Path(path)) if path else {}
    for name in own:
        if any(row.id == name for row in ROWS):
            raise UsageError(f"{path}: mutant {name} is in the catalogue too; choose another id")
    return own


def planted_mutant(name: str) -> Mutant:
    """The mutant of that id; raises UsageError where there is none, or it is not planted, with the reason."""
    known = [*ROWS, *own_mutants().values()]
    row = next((row for row in known if row.id == name), None)
    if isinstance(row, Mutant):
        return row
    if isinstance(row, Waiting):
        why = f"not planted, it waits for {row.capability}"
    elif isinstance(row, ForTheOracle):
        why = f"not hunted, {row.told_by} tells of it"
    elif isinstance(row, Excluded):
        why = "not planted, excluded by design"
    else:
        why = f"not in the catalogue, nor in a file that {VARIABLE} names"
    raise UsageError(f"mutant {name}: {why}; see 'swarden mutants'")
