"""Mutants in a Python file of the user."""

import os
import runpy
import traceback
from dataclasses import asdict
from functools import cache
from pathlib import Path

import msgspec

from swarden.harness.core.driver import STUCK
from swarden.harness.core.errors import UsageError
from swarden.harness.core.imports import one_line
from swarden.harness.core.mutant import Mutant, Mutants
from swarden.harness.core.target import Target, prepare
from swarden.invariants.catalog import ALL

VARIABLE = "SWARDEN_MUTANTS"  # the path of the file; worker processes inherit it


def mutants_of_environment(target: Target) -> dict[str, Mutant]:
    """The mutants of the file that VARIABLE names, by id; raises UsageError if the file or an id is invalid."""
    path = os.environ.get(VARIABLE)
    own = mutants_of(Path(path)) if path else {}
    for mutant in target.catalog:
        if mutant.id in own:
            raise UsageError(f"{path}: mutant {mutant.id} is in the catalogue too; choose another id")
    return own


def mutant_of(target: Target, name: str) -> Mutant:
    """The mutant with that id, of the target or of the user's file; raises UsageError if there is none."""
    own = mutants_of_environment(target)
    return own[name] if name in own else target.mutant(name)


@cache
def mutants_of(path: Path) -> dict[str, Mutant]:
    """The mutants at module level of a Python file, by id; raises UsageError if it has none or cannot be run."""
    if path.exists() and not path.is_file():  # worker processes read it again
        raise UsageError(f"{path}: is no regular file; name a Python file with mutants")
    try:
        namespace = runpy.run_path(str(path))
    except SyntaxError as error:
        raise UsageError(f"{error.filename or path}:{error.lineno}: {error.msg}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, OSError) and not lines:
            raise UsageError(f"{path}: cannot be read: {error.strerror}; name a Python file with mutants") from error
        raise UsageError(f"{path}:{lines[-1] if lines else 1}: {one_line(error)}") from error
    mutants: dict[str, Mutant] = {}
    for value in namespace.values():
        for mutant in value.all if isinstance(value, Mutants) else (value,):
            if isinstance(mutant, Mutant) and mutants.setdefault(mutant.id, mutant) is not mutant:
                raise UsageError(f"{path}: mutant {mutant.id} is there twice; give one of them another id")
    if not mutants:
        raise UsageError(f"{path}: has no Mutant at module level; see harness/engines/own/mutants for examples")
    return mutants


def check_mutant(target: Target, mutant: Mutant) -> None:
    """Check that a mutant can be planted; raises UsageError if it is stale or names something unknown."""
    try:
        msgspec.convert(asdict(mutant), Mutant)
    except msgspec.ValidationError as error:
        raise UsageError(f"mutant {mutant.id}: {error}") from error
    spec = target.machines.get(mutant.machine)
    if spec is None:
        machines = ", ".join(map(repr, target.machines))
        raise UsageError(f"mutant {mutant.id}: machine {mutant.machine!r} is not one of {machines}")
    if mutant.model not in ("", *spec.models):
        models = ", ".join(map(repr, ("", *spec.models)))
        raise UsageError(f"mutant {mutant.id}: model {mutant.model!r} is not one of {models}")
    if not mutant.caught_by:
        raise UsageError(f"mutant {mutant.id}: caught_by is empty; name the laws that may detect it")
    laws = {invariant.name for invariant in ALL.invariants} | {STUCK.split("/")[0]} | _error_names(Exception)
    for name in mutant.caught_by:
        if name not in laws:
            raise UsageError(
                f"mutant {mutant.id}: caught_by has {name!r}, which is neither an invariant nor an exception"
            )
    prepare(target)
    with mutant.planted():
        pass


def _error_names(kind: type[Exception]) -> set[str]:
    return {kind.__name__}.union(*(_error_names(below) for below in kind.__subclasses__()))
