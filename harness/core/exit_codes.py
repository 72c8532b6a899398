"""The exit codes of the commands."""

import signal
from collections.abc import Iterable
from enum import IntEnum

STOPPING = (signal.SIGINT, signal.SIGTERM)  # interrupt a command


class ExitCode(IntEnum):
    """The exit codes in the order of precedence.

    FAULT is an internal error.  STUCK: a drain did not finish in time.  INTERRUPTED: the command was ended before it
    had a verdict.  RED: the minimum coverage was not reached, a mutant was not found, or a crash did not repeat.
    """

    FAULT = 70
    MISUSE = 2
    NONDETERMINISTIC = 4
    VIOLATED = 1
    STUCK = 3
    INTERRUPTED = 130
    RED = 5
    CLEAN = 0


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The exit code with the highest precedence; CLEAN if there is none."""
    present = set(codes)
    return next((code for code in ExitCode if code in present), ExitCode.CLEAN)
