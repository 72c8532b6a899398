"""Counters at every statement of the core of a release note what runs, and leave the run as it is."""

from pathlib import Path

import pytest

from swarden.harness.core.changed_code import difference
from swarden.harness.core.changes import import_root
from swarden.harness.core.counters import Counters
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Drain, Step, Submit
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import run_log

OPS = [
    Submit(tokens=tuple(range(1, 10)), max_new_tokens=6),
    Step(count=4),
    Submit(tokens=(1, 2, 3, 4)),
    Step(),
    Abort(),
]


def followed(engine: str, core: str, empty: Path) -> tuple[set[str], float, bool]:
    """The functions that ran, the share of statements with a counter, and whether the digests are the same without."""
    target = target_of(engine)
    log = OpLog(Header(engine=target.name, version=target.version(), configs=[{}]), [*OPS, Drain()])
    without = run_log(log, keep_digests=True)
    root = import_root(target)
    assert root is not None
    change = difference(empty, root, core).lines
    counters = Counters(change)
    with_counters = run_log(log, keep_digests=True, inside=counters.planted())
    coverage = counters.coverage
    ran = {change[line].function.partition(":")[2] for line in coverage.ran}
    return ran, len(coverage.followed) / len(coverage.imported), without.digests == with_counters.digests


@pytest.mark.parametrize(
    ("engine", "core", "function"),
    [
        ("sglang==0.5.23", "sglang.srt.mem_cache", "UnifiedRadixCache.match_prefix"),
        ("vllm==0.33.0", "vllm.v1.core", "Scheduler.finish_requests"),
    ],
)
def test_counters_at_every_statement_leave_a_run_as_it_is(in_process_of, tmp_path, engine, core, function):
    ran, share, is_same = in_process_of(engine, followed, engine, core, tmp_path)

    assert is_same
    assert function in ran
    assert share > 0.95
