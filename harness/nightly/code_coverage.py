"""The lines of an engine's code that a corpus runs.

The corpus has the runs of all nights that reached something new.  They are measured in a process of their own after the
campaign, because tracing slows an engine down.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

import coverage

from harness.core.oplog import OpLog
from harness.core.registry import target_of
from harness.core.replay import run_log
from harness.nightly.page import FileLines, Measured


def lines_run_by(engine: str, paths: Sequence[Path], seconds: float) -> Measured:
    """Run op-logs for so many CPU seconds; the engine must not have been imported in this process.

    Raises UsageError for a log that cannot be read.
    """
    measure = coverage.Coverage(data_file=None, config_file=False)
    measure.start()
    target = target_of(engine)
    num_run, began = 0, process_time()
    for path in paths:
        if process_time() - began >= seconds:
            break
        run_log(OpLog.load(path, engine=engine))
        num_run += 1
    measure.stop()
    return Measured(list(_files(measure, target.code.package)), num_run, len(paths))


def _files(measure: coverage.Coverage, package: str) -> Iterator[FileLines]:
    root = Path(str(sys.modules[package].__file__)).parent
    for name in sorted(measure.get_data().measured_files()):
        if Path(name).is_relative_to(root):
            _, lines, _, missing, ranges = measure.analysis2(name)
            if lines:
                path = Path(name).relative_to(root).as_posix()
                yield FileLines(path, len(lines), len(lines) - len(missing), ranges)
