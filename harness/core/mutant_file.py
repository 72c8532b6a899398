"""Mutants that stand in a file of the user's own."""

import os
import runpy
import traceback
from dataclasses import asdict
from functools import cache
from pathlib import Path

import msgspec

from harness.core.driver import STUCK
from harness.core.errors import UsageError
from harness.core.mutant import Mutant
from harness.core.target import Target
from invariants.catalog import ALL

VARIABLE = "SWARDEN_MUTANTS"  # names the file, so that every process knows its mutants


def mutants_of_environment(target: Target) -> dict[str, Mutant]:
    """The mutants of the file that the environment names, by id; raises UsageError where one cannot be used."""
    path = os.environ.get(VARIABLE)
    own = mutants_of(Path(path)) if path else {}
    for one in target.mutants():
        if one.id in own:
            raise UsageError(f"{path}: mutant {one.id} is in the catalogue too; choose another id")
    return own


def mutant_of(target: Target, name: str) -> Mutant:
    """The mutant of that id, of the target or of the environment's file; raises UsageError where there is none."""
    own = mutants_of_environment(target)
    return own[name] if name in own else target.mutant(name)


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


def check_mutant(target: Target, mutant: Mutant) -> None:
    """Raises UsageError where a mutant cannot be hunted: it does not fit the code, or names what does not exist."""
    try:
        msgspec.convert(asdict(mutant), Mutant)
    except msgspec.ValidationError as error:
        raise UsageError(f"mutant {mutant.id}: {error}") from error
    spec = target.machines.get(mutant.machine)
    if spec is None:
        known = ", ".join(map(repr, target.machines))
        raise UsageError(f"mutant {mutant.id}: machine {mutant.machine!r} is not one of {known}")
    if mutant.model not in ("", *spec.models):
        known = ", ".join(map(repr, ("", *spec.models)))
        raise UsageError(f"mutant {mutant.id}: model {mutant.model!r} is not one of {known}")
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
