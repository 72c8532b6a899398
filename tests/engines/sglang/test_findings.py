"""The bugs that were found in releases: each op-log fails on the releases that have its bug, and passes on the others.

The bugs are in harness/engines/sglang/findings.  The healthy op-logs failed once by a fault of the harness.
"""

from pathlib import Path

import pytest

import swarden.harness.engines.sglang
from tests.engines.some_findings import laws_with, misplaced, op_logs_of, plant_all
from tests.engines.some_laws import law_of, laws_of

HEALTHY = Path(__file__).parent / "healthy"
OPLOGS = Path(swarden.harness.engines.sglang.__file__).with_name("findings")


@pytest.mark.parametrize("shown", op_logs_of("sglang"), ids=str)
def test_op_log_fails_only_on_the_releases_that_have_its_bug(shown, on_release, release):
    engine = f"sglang=={release}"

    laws = on_release(release, laws_with, shown.path, engine)

    assert (law_of(shown.path, engine) in laws) is shown.span.has(release)


@pytest.mark.parametrize("shown", op_logs_of("sglang"), ids=str)
def test_op_log_passes_with_the_fix_of_its_bug(shown, on_release, release):
    if shown.bug.patch_for(release) is None:
        pytest.skip("no fix fits this release")

    assert on_release(release, laws_with, shown.path, f"sglang=={release}", shown.bug.name) == set()


def test_all_fixes_of_a_release_fit_together(on_release, release):
    assert on_release(release, plant_all, f"sglang=={release}")


def test_code_of_each_bug_is_where_its_file_says(release):
    assert misplaced(f"sglang=={release}") == []


def test_every_op_log_is_of_a_known_bug():
    of_files = {shown.path.stem for shown in op_logs_of("sglang")}

    assert {path.stem for path in OPLOGS.glob("*.oplog")} == of_files


@pytest.mark.parametrize("path", sorted(HEALTHY.iterdir()), ids=lambda path: path.stem)
def test_healthy_run_passes(path, on_release, release):
    assert on_release(release, laws_of, path, f"sglang=={release}") == set()
