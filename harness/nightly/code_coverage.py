"""The lines of an engine's code that a corpus runs.

The corpus has the runs of all nights that reached something new.  They are measured in a process of their own after the
campaign, because tracing slows an engine down.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time

import coverage

from swarden.harness.core.admission import load_log
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import run_log
from swarden.harness.nightly.page import FileLines, MeasuredCode

RUNS = "^runs$"  # the context of the lines that ran after the imports, as a pattern


def lines_run_by(engine: str, paths: Sequence[Path], seconds: float) -> MeasuredCode:
    """The lines that op-logs run in these CPU seconds, in a process without the engine; UsageError for a bad log."""
    measure = coverage.Coverage(data_file=None, config_file=False)
    measure.start()
    target = target_of(engine)
    for path in paths[:1]:
        run_log(load_log(path, engine=engine, inside=path.parent))  # imports the engine
    measure.switch_context("runs")
    num_run, began = 0, process_time()
    for path in paths:
        if process_time() - began >= seconds:
            break
        run_log(load_log(path, engine=engine, inside=path.parent))
        num_run += 1
    measure.stop()
    root = Path(str(sys.modules[target.code.package].__file__)).resolve().parent  # coverage resolves links
    data = measure.get_data()
    names = sorted(name for name in data.measured_files() if Path(name).is_relative_to(root))
    data.set_query_contexts([RUNS])
    ran = [name for name in names if data.lines(name)]
    data.set_query_contexts(None)
    files = [_lines_of(measure, root, name) for name in ran]
    return MeasuredCode(files, len(names) - len(ran), num_run, len(paths))


def _lines_of(measure: coverage.Coverage, root: Path, name: str) -> FileLines:
    _, lines, _, missing, ranges = measure.analysis2(name)
    return FileLines(Path(name).relative_to(root).as_posix(), len(lines), len(lines) - len(missing), ranges)
