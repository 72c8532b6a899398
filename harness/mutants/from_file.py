"""Mutants that stand in a file of the user's own."""

import runpy
import traceback
from dataclasses import asdict
from functools import cache
from pathlib import Path

import msgspec

from harness.core.driver import STUCK
from harness.core.errors import UsageError
from harness.core.registry import MACHINES, RUN_MODELS
from harness.engines.own.models import MODELS
from harness.mutants.mutant import Mutant
from invariants.catalog import ALL


@cache
def mutants_of(path: Path) -> dict[str, Mutant]:
    """The mutants at the top of a Python file, by id; raises UsageError where it has none or cannot be run."""
    try:
        namespace = runpy.run_path(str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; name a Python file with mutants") from error
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), 1)
        raise UsageError(f"{path}:{line}: {type(error).__name__}: {error}") from error
    found: dict[str, Mutant] = {}
    for value in namespace.values():
        if isinstance(value, Mutant) and found.setdefault(value.id, value) is not value:
            raise UsageError(f"{path}: mutant {value.id} is there twice; give one of them another id")
    if not found:
        raise UsageError(f"{path}: has no Mutant at its top; see harness/engines/own/mutants for examples")
    return found


def check_mutant(mutant: Mutant) -> None:
    """Raises UsageError where a mutant cannot be hunted: it does not fit the code, or names what does not exist."""
    try:
        msgspec.convert(asdict(mutant), Mutant)
    except msgspec.ValidationError as error:
        raise UsageError(f"mutant {mutant.id}: {error}") from error
    for option, value, known in (
        ("machine", mutant.machine, [*MACHINES]),
        ("model", mutant.model, ["", *MODELS] if mutant.machine in RUN_MODELS else [""]),
    ):
        if value not in known:
            raise UsageError(f"mutant {mutant.id}: {option} {value!r} is not one of {', '.join(map(repr, known))}")
    if not mutant.caught_by:
        raise UsageError(f"mutant {mutant.id}: caught_by is empty; name the laws that may tell of it")
    laws = {invariant.name for invariant in ALL.invariants} | {STUCK.split("/")[0]} | _error_names(Exception)
    for name in mutant.caught_by:
        if name not in laws:
            raise UsageError(f"mutant {mutant.id}: caught_by has {name!r}, which is no invariant and no exception")
    with mutant.planted():
        pass


def _error_names(kind: type[Exception]) -> set[str]:
    return {kind.__name__}.union(*(_error_names(below) for below in kind.__subclasses__()))
