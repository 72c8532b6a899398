"""The bugs that were found in releases: each op-log fails on the releases that have its bug, and passes on the others.

The bugs are in harness/engines/sglang/findings.  The healthy op-logs failed once by a fault of the harness.
"""

from pathlib import Path

import pytest

import swarden.harness.engines.sglang
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.releases import parsed
from tests.engines.some_findings import laws_with, misplaced, op_logs_of, plant_all
from tests.engines.some_laws import law_of, laws_of

HEALTHY = Path(__file__).parent / "healthy"
OPLOGS = Path(swarden.harness.engines.sglang.__file__).with_name("findings")
# Without a file yet, by op-log: the first release that has the bug, and the first that has not.
BUGS: dict[str, tuple[str, str | None]] = {
    "chunked-prefill-out-of-memory": ("0.5.10.post1", "0.5.11"),
    "live-node-without-windowed-pages": ("0.5.10.post1", "0.5.11"),
    "use-after-free-of-a-locked-node": ("0.5.10.post1", "0.5.15.post1"),
    "prompt-capped-by-the-windowed-pool": ("0.5.11", "0.5.13"),
    "load-back-outside-budget": ("0.5.12", "0.5.13"),
    "write-back-unlocks-node": ("0.5.12", "0.5.13"),
    "write-back-without-host-page": ("0.5.12", "0.5.13"),
    "lock-released-below-split": ("0.5.12", "0.5.13"),
    "pause-keeps-batch-full": ("0.5.13", "0.5.17"),
    "write-back-refused-by-host": ("0.5.13", "0.5.17"),
    "load-back-loses-its-host-pages": ("0.5.13", "0.5.14"),
    "load-queued-without-its-request": ("0.5.12", "0.5.23"),
    "load-races-pass-in-flight": ("0.5.14", "0.5.19"),
    "session-window-unlocked-twice": ("0.5.12", "0.5.20"),
    "chunked-turn-keeps-window": ("0.5.11", "0.5.22"),
    "queued-abort-blocks-session": ("0.5.11", "0.5.22"),
    "window-not-of-whole-pages": ("0.5.22", "0.5.23"),
    "preempted-request-lost": ("0.5.11", "0.5.22"),
    "mixed-batch-out-of-memory": ("0.5.11", "0.5.21"),
    "truncated-prompt-answered": ("0.5.17", "0.5.18"),
    "pause-ignored-by-a-pair": ("0.5.10.post1", "0.5.11"),
    "verify-out-of-memory": ("0.5.10.post1", "0.5.11"),
    "paged-free-keeps-mapping": ("0.5.10.post1", "0.5.14"),
    "stop-token-among-drafts-missed": ("0.5.14", "0.5.18"),
    "abort-of-a-parked-chunk": ("0.5.12", "0.5.14"),
    "parked-chunk-published": ("0.5.11", "0.5.12"),
    "parked-turn-published": ("0.5.11", "0.5.12"),
    "closed-session-keeps-turn": ("0.5.11", "0.5.23"),
    "lock-taken-back-from-split-node": ("0.5.12", "0.5.23"),
}


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


@pytest.mark.parametrize("name", BUGS)
def test_finding_fails_only_on_the_releases_that_have_it(name, on_release, release):
    path = OPLOGS / f"{name}.oplog"
    first, fixed = BUGS[name]
    has_bug = parsed(first) <= parsed(release) and (fixed is None or parsed(release) < parsed(fixed))
    engine = f"sglang=={release}"

    try:
        laws = on_release(release, laws_of, path, engine)
    except InvalidConfig:  # the release has not the part that has the bug
        laws = set()
    assert (law_of(path, engine) in laws) is has_bug


def test_every_op_log_is_of_a_known_bug():
    of_files = {shown.path.stem for shown in op_logs_of("sglang")}

    assert {path.stem for path in OPLOGS.glob("*.oplog")} == {*BUGS, *of_files}


@pytest.mark.parametrize("path", sorted(HEALTHY.iterdir()), ids=lambda path: path.stem)
def test_healthy_run_passes(path, on_release, release):
    assert on_release(release, laws_of, path, f"sglang=={release}") == set()
