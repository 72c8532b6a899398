"""The catalogue of mutants by number: planted, excluded by design, or detected by a test only.

The bugs are those of the Mutants of each module of this package, and its module-level values.
"""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from swarden.harness.core.errors import UsageError
from swarden.harness.core.mutant import Mutant, Mutants
from swarden.harness.search.mutants.unplanted import Bug, DetectedByTest, Excluded


def collected() -> tuple[Bug, ...]:
    """The bugs of all modules of this package: published bugs (B), then our own (S), by number."""
    modules = [module.name for module in iter_modules([str(Path(__file__).parent)], f"{__package__}.")]
    values = [value for name in modules if name != __name__ for value in vars(import_module(name)).values()]
    values += [mutant for value in values if isinstance(value, Mutants) for mutant in value.all]
    bugs: dict[str, Bug] = {}
    for bug in values:
        if isinstance(bug, Bug):
            assert bugs.setdefault(bug.id, bug) is bug, f"two bugs have the id {bug.id}"
    return tuple(sorted(bugs.values(), key=_place))


def _place(bug: Bug) -> tuple[str, int]:
    number = re.fullmatch(r"([BS])(\d+)", bug.id)
    assert number, f"{bug.id!r} is not B or S and a number"
    return number[1], int(number[2])


BUGS = collected()
CATALOG = tuple(bug for bug in BUGS if isinstance(bug, Mutant))
BY_ID = {mutant.id: mutant for mutant in CATALOG}


def mutant_of_catalog(name: str) -> Mutant:
    """The mutant with that id; raises UsageError with the reason if there is none, or no search looks for the bug."""
    bug = next((bug for bug in BUGS if bug.id == name), None)
    if isinstance(bug, Mutant):
        return bug
    if isinstance(bug, DetectedByTest):
        why = f"not searched, {bug.detected_by} detects it"
    elif isinstance(bug, Excluded):
        why = "not planted, excluded by design"
    else:
        why = "not in the catalogue, nor in a file that SWARDEN_MUTANTS names"
    raise UsageError(f"mutant {name}: {why}; see 'swarden mutants'")
