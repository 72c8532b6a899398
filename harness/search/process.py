"""What a process needs before it drives engines for long."""

import gc
import os
from pathlib import Path

from hypothesis.configuration import set_hypothesis_home_dir

YOUNG_OBJECTS = 50_000  # between two looks for garbage: a run keeps its history, and little of it is garbage
OLDER_EVERY = 2  # looks at a generation, between two at the one behind it


def prepare_process() -> None:
    """Collect garbage seldom, and never in what is imported.

    What survives the first look is looked at soon again: there are the engines of runs that have ended, in cycles.
    Hypothesis keeps caches in its home directory even without a database.  It works without them, so its home
    is a place where no directory can be made: nothing is written, and no link of another user is followed.
    """
    set_hypothesis_home_dir(Path(os.devnull) / "hypothesis")
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, OLDER_EVERY, OLDER_EVERY)
