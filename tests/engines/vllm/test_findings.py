"""The bugs that were found in releases: each op-log fails on the releases that have its bug, and passes on the others.

The bugs are in harness/engines/vllm/findings.
"""

from pathlib import Path

import pytest

import swarden.harness.engines.vllm
from swarden.harness.core.releases import parsed
from tests.engines.some_findings import laws_with, misplaced, op_logs_of, plant_all
from tests.engines.some_laws import law_of, laws_of

OPLOGS = Path(swarden.harness.engines.vllm.__file__).with_name("findings")
BUGS = {  # without a file yet, by op-log: the first release that has the bug, and the first that has not
    "first-token-after-a-pause-dropped": ("0.20.2", "0.22.0"),
    "last-token-after-a-pause-never-computed": ("0.20.2", "0.22.0"),
    "aborted-load-keeps-its-blocks": ("0.20.2", "0.22.0"),
    "one-block-for-two-groups": ("0.20.2", "0.26.0"),
    "loaded-requests-wait-for-each-other": ("0.20.2", "0.23.0"),
    "loaded-request-stranded-behind-the-queue-head": ("0.20.2", "0.33.0"),
    "hit-longer-than-the-cached-attention": ("0.20.2", "0.26.0"),
    "window-block-freed-before-the-drafts-are-verified": ("0.20.2", "0.26.0"),
    "load-reserves-too-little-beside-a-window": ("0.20.2", None),
}

NEWEST = "0.33.0"
BUGS_OF_THE_NEWEST = (  # of parts that the oldest release does not have
    "second-reset-of-the-offloading-cache",
    "prompt-of-one-token-loaded-forever",
    "paused-decode-side-reads-after-the-lease",
    "load-refused-for-its-draft-blocks",
    "failed-read-blocks-the-queue",
)


@pytest.mark.parametrize("shown", op_logs_of("vllm"), ids=str)
def test_op_log_fails_only_on_the_releases_that_have_its_bug(shown, on_release, release):
    engine = f"vllm=={release}"

    laws = on_release(release, laws_with, shown.path, engine)

    assert (law_of(shown.path, engine) in laws) is shown.span.has(release)


@pytest.mark.parametrize("shown", op_logs_of("vllm"), ids=str)
def test_op_log_passes_with_the_fix_of_its_bug(shown, on_release, release):
    if shown.bug.patch_for(release) is None:
        pytest.skip("no fix fits this release")

    assert on_release(release, laws_with, shown.path, f"vllm=={release}", shown.bug.name) == set()


def test_all_fixes_of_a_release_fit_together(on_release, release):
    assert on_release(release, plant_all, f"vllm=={release}")


def test_code_of_each_bug_is_where_its_file_says(release):
    assert misplaced(f"vllm=={release}") == []


@pytest.mark.parametrize("name", BUGS)
def test_finding_fails_only_on_the_releases_that_have_it(name, on_release, release):
    path, engine = OPLOGS / f"{name}.oplog", f"vllm=={release}"
    first, fixed = BUGS[name]
    has_bug = parsed(first) <= parsed(release) and (fixed is None or parsed(release) < parsed(fixed))

    assert (law_of(path, engine) in on_release(release, laws_of, path, engine)) is has_bug


@pytest.mark.parametrize("name", BUGS_OF_THE_NEWEST)
def test_finding_of_a_newer_part_fails_on_the_newest_release(name, on_release):
    path, engine = OPLOGS / f"{name}.oplog", f"vllm=={NEWEST}"

    assert law_of(path, engine) in on_release(NEWEST, laws_of, path, engine)


def test_every_op_log_is_of_a_known_bug():
    of_files = {shown.path.stem for shown in op_logs_of("vllm")}

    assert {path.stem for path in OPLOGS.glob("*.oplog")} == {*BUGS, *BUGS_OF_THE_NEWEST, *of_files}
