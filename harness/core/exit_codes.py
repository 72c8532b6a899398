"""How a command ends; the first that applies is the one to use."""

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """In the order of precedence; CLEAN is the last.

    A FAULT of swarden itself and an INTERRUPTED command have no verdict.
    """

    FAULT = 70
    INTERRUPTED = 130
    MISUSE = 2
    NONDETERMINISTIC = 4
    VIOLATED = 1
    STUCK = 3
    RED = 5
    CLEAN = 0


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The one that takes precedence; CLEAN where there is none."""
    present = set(codes)
    return next((code for code in ExitCode if code in present), ExitCode.CLEAN)
