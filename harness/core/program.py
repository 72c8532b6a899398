"""A finding as a program that needs only the engine's package."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.ops import Op, Submit

SCRIPT, PYTEST, HTTP, ISSUE = "script", "pytest", "http", "issue"  # the forms of a finding for maintainers


class NoProgram(UsageError):
    """An op-log that no program of the engine's package alone can show; the text says why."""


def check_single(ops: Iterable[Op]) -> None:
    """Raises NoProgram if a request has several sequences: a front end makes them, and a program has none."""
    if any(isinstance(op, Submit) and op.sequences > 1 for op in ops):
        raise NoProgram("a request of the op-log has several sequences, and a program sends requests with one")


class Program(NamedTuple):
    """A template (Jinja) beside the target, and its values: plain data, which the program has as literals.

    A program that `carries_stand_ins` has its own stand-ins for packages that are not installed.
    """

    template: Path
    values: Mapping[str, Any]
    carries_stand_ins: bool = False
