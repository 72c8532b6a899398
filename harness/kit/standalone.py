"""How a program ends: with 1 if it shows its bug, with 0 without the bug, with 2 for all else."""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

CHECKS: list[str] = []  # where it fails: functions of this file, by an assert
BUG: dict[str, str] = {}  # or functions of the release, with exceptions ("": any)


def run_script(test: Callable[[], None]) -> None:
    """Run the test; end with its exit code."""
    if not __debug__:
        print("not run: asserts are off", file=sys.stderr)
        sys.exit(2)
    try:
        test()
    except Exception as error:
        kind, places = type(error).__name__, traceback.extract_tb(error.__traceback__)
        for place in reversed(places):  # of the functions of this file, only that which has raised the error
            is_own = place.filename == __file__
            is_bug = BUG.get(place.name) in (kind, "")
            if is_own:
                is_bug = place is places[-1] and kind == "AssertionError" and place.name in CHECKS
            if is_bug:
                what = "".join([f": {line}" for line in str(error).strip().splitlines()[:1]])
                where = f"{place.name}, {Path(place.filename).name}:{place.lineno}"
                print(f"BUG: {error}" if is_own else f"BUG: {kind}{what} in {where}")
                sys.exit(1)
        traceback.print_exc()
        print(f"not run to the end: another symptom, {kind}: {error}", file=sys.stderr)
        sys.exit(2)
    print("no bug")
