"""The bugs that were found in releases: each op-log fails on the releases that have its bug, and passes on the others.

The bugs are in harness/engines/NAME/findings, and below SWARDEN_EMBARGO if it is set.  The healthy op-logs failed once
by a fault of the harness or of a fix.
"""

from pathlib import Path

import pytest

from docs.make.pages import ROOT, own_bugs
from swarden.harness.core.admission import load_log
from tests.engines.crossing import foreign_causes, logs_of, reasons_in
from tests.engines.lmdeploy.conftest import RELEASES as LMDEPLOY_RELEASES
from tests.engines.sglang.conftest import RELEASES as SGLANG_RELEASES
from tests.engines.some_findings import (
    causes_of,
    failures_with_large_pools,
    laws_with,
    misfits,
    misplaced,
    op_logs_of,
    plant_all,
)
from tests.engines.some_laws import law_of
from tests.engines.transformers.conftest import RELEASES as TRANSFORMERS_RELEASES
from tests.engines.vllm.conftest import RELEASES as VLLM_RELEASES

RELEASES = {
    "lmdeploy": LMDEPLOY_RELEASES,
    "sglang": SGLANG_RELEASES,
    "transformers": TRANSFORMERS_RELEASES,
    "vllm": VLLM_RELEASES,
}
ON = [(name, release) for name, releases in RELEASES.items() for release in releases]
of_each_release = pytest.mark.parametrize("engine", [f"{name}=={release}" for name, release in ON])
of_each_op_log = pytest.mark.parametrize(
    ("shown", "release", "engine"),
    [
        pytest.param(shown, release, f"{name}=={release}", id=f"{shown}-{release}")
        for name, release in ON
        for shown in op_logs_of(name)
    ],
)
of_each_fix = pytest.mark.parametrize(
    ("shown", "engine"),
    [
        pytest.param(shown, f"{name}=={release}", id=f"{shown}-{release}")
        for name, release in ON
        for shown in op_logs_of(name)
        if shown.bug.patch_for(release) is not None
    ],
)
of_each_large_pool = pytest.mark.parametrize(
    ("bug", "engine"),
    [
        pytest.param(bug, f"{name}=={releases[-1]}", id=bug.name)
        for name, releases in RELEASES.items()
        for bug in own_bugs(name)
        if bug.large_pools
    ],
)
of_each_healthy_log = pytest.mark.parametrize(
    ("path", "engine"),
    [
        pytest.param(path, f"{name}=={release}", id=f"{path.stem}-{release}")
        for name, release in ON
        for path in sorted(Path(__file__).parent.glob(f"{name}/healthy/*.oplog"))
        if set(load_log(path).header.fixes) <= {bug.name for bug in own_bugs(name) if bug.patch_for(release)}
    ],
)
NEWEST = ("sglang==0.5.23", "vllm==0.33.0")
of_each_crossing = pytest.mark.parametrize(
    ("path", "own", "engine"),
    [pytest.param(path, own, engine, id=path.stem) for engine in NEWEST for path, own in logs_of(engine).items()],
)


@of_each_op_log
def test_op_log_fails_only_on_the_releases_that_have_its_bug(shown, release, engine, in_process_of):
    laws = in_process_of(engine, laws_with, shown.path, engine)

    assert (law_of(shown.path) in laws) is shown.span.has(release)


@of_each_fix
def test_op_log_passes_with_the_fix_of_its_bug(shown, engine, in_process_of):
    assert in_process_of(engine, laws_with, shown.path, engine, shown.bug.name) == set()


@of_each_fix
def test_failure_of_an_op_log_is_of_its_bug(shown, engine, in_process_of):
    """Another fix may cure it, too; what no fix cures would be reported as new."""
    assert shown.bug.name in in_process_of(engine, causes_of, shown.path, engine, shown.bug.name)


@of_each_crossing
def test_fixes_of_other_bugs_make_no_failure_known_without_a_reason(path, own, engine, in_process_of):
    """`python -m tests.engines.crossing` finds them, and lists them in `crossing.json`, where the reasons are."""
    reasons = reasons_in(engine.partition("==")[0]).get(path.stem, {})

    assert {fix for fix, reason in reasons.items() if reason} >= in_process_of(
        engine, foreign_causes, path, engine, own
    )


@of_each_large_pool
def test_op_log_fails_with_large_pools_and_passes_there_with_the_fix(bug, engine, in_process_of):
    failures, with_fix = in_process_of(engine, failures_with_large_pools, bug.name, engine)

    assert failures & set(bug.fingerprints)
    assert with_fix is None


@of_each_release
def test_all_fixes_of_a_release_fit_together(engine, in_process_of):
    assert in_process_of(engine, plant_all, engine)


@of_each_release
def test_code_of_each_bug_is_where_its_file_says(engine):
    assert misplaced(engine) == []


@of_each_release
def test_diff_of_each_fix_applies_to_the_last_release_that_it_is_for(engine, tmp_path):
    assert misfits(engine, tmp_path) == []


@pytest.mark.parametrize("name", RELEASES)
def test_every_op_log_is_of_a_known_bug(name):
    folder = ROOT / "harness/engines" / name / "findings"

    assert {*folder.glob("*.oplog")} <= {shown.path.resolve() for shown in op_logs_of(name)}


@of_each_healthy_log
def test_healthy_run_passes(path, engine, in_process_of):
    assert in_process_of(engine, laws_with, path, engine) == set()
