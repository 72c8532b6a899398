"""A finding as a program that needs only the engine's package."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError

SCRIPT, PYTEST, HTTP, ISSUE = "script", "pytest", "http", "issue"  # the forms of a finding for maintainers


class NoProgram(UsageError):
    """An op-log that no program of the engine's package alone can show; the text says why."""


class Program(NamedTuple):
    """A typed module beside the target, the values of its constants, and the `calls` of its case.

    All are plain data, which the program has as literals.  A call has its `name`, its `args`, and more by name.
    """

    source: Path
    constants: Mapping[str, Any]
    calls: Sequence[Mapping[str, Any]] = ()
