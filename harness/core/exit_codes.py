"""The exit codes of the commands."""

import signal
from collections.abc import Iterable
from enum import IntEnum

STOPPING = (signal.SIGINT, signal.SIGTERM)  # interrupt a command


class ExitCode(IntEnum):
    """The exit codes in the order of precedence."""

    FAULT = 70  # an internal error
    MISUSE = 2
    NONDETERMINISTIC = 4
    VIOLATED = 1
    STUCK = 3  # a drain did not finish in time
    INTERRUPTED = 130  # the command was ended before it had a verdict
    RED = 5  # the minimum coverage was not reached, a mutant was not found, or a crash did not repeat
    CLEAN = 0


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The exit code with the highest precedence; CLEAN if there is none."""
    present = set(codes)
    return next((code for code in ExitCode if code in present), ExitCode.CLEAN)
