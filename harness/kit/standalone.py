"""How a program ends: with 1 if it shows its bug, with 0 without the bug, with 2 for all else."""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

SYMPTOMS: list[str] = []  # those of this bug
ERROR: list[str] = []  # the exception that the bug raises ("": any), and its function


class Bug(Exception):
    """A symptom, which is of this bug if it is in SYMPTOMS."""

    def __init__(self, symptom: str, text: str) -> None:
        super().__init__(text)
        self.symptom = symptom


def as_bug(error: Exception) -> Exception:
    """The Bug that an exception is; else an error that says so."""
    if ERROR:
        kind, function = ERROR
        places = [place for place in traceback.extract_tb(error.__traceback__) if place.name == function]
        if places and type(error).__name__ == (kind or type(error).__name__):
            what = "".join([f": {line}" for line in str(error).strip().splitlines()[:1]])
            where = f"{function}, {Path(places[-1].filename).name}:{places[-1].lineno}"
            return Bug("error", f"{type(error).__name__}{what} in {where}")
    if SYMPTOMS:
        if isinstance(error, Bug) and error.symptom in SYMPTOMS:
            return Bug(error.symptom, str(error))
    return RuntimeError(f"another symptom, {type(error).__name__}: {error}")


def end(test: Callable[[], None]) -> None:
    """Run the test; end with its exit code."""
    try:
        test()
    except Bug as bug:
        print(f"BUG: {bug}")
        sys.exit(1)
    except Exception as error:
        traceback.print_exc()
        print(f"not run to the end: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    print("no bug")
