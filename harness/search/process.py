"""The settings of a process that drives engines for long."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

YOUNG_OBJECTS = 200_000  # between two collections: a run keeps its history, and little of it is garbage
OLDER_EVERY = 2  # collections of a generation between two of the next older one


def prepare_process() -> None:
    """Collect garbage seldom, and never among imported objects.

    Older generations are collected soon, because the engines of finished runs are garbage in cycles.
    Hypothesis writes caches to its home directory even without a database, and works without them.  Its home is set to
    a path that cannot exist, so no file is written and no link of another user is followed.
    """
    set_hypothesis_home_dir(Path(os.devnull) / "hypothesis")
    providers._get_local_constants = Constants  # as in same_draws, for the whole process
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, OLDER_EVERY, OLDER_EVERY)


@contextmanager
def same_draws() -> Iterator[None]:
    """Let the draws of Hypothesis depend on the seed alone within the body.

    Otherwise Hypothesis also draws numbers that it finds in the source of the imported modules: runs would depend on
    what a process has imported, and reading the source of a serving engine takes 5 to 7 s.
    """
    before = providers._get_local_constants
    providers._get_local_constants = Constants
    try:
        yield
    finally:
        providers._get_local_constants = before
