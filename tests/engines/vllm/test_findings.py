"""The bugs that were found in releases: each op-log fails on the releases that have its bug, and passes on the others.

docs/findings/ explains each bug.
"""

from pathlib import Path

import pytest

from swarden.harness.core.releases import parsed
from tests.engines.some_laws import law_of, laws_of

OPLOGS = Path(__file__).parent / "oplogs"
BUGS = {  # by op-log: the first release that has the bug, and the first that has not; of those that were tried
    "first-token-after-a-pause-dropped": ("0.20.2", "0.22.0"),
    "last-token-after-a-pause-never-computed": ("0.20.2", "0.22.0"),
    "aborted-load-keeps-its-blocks": ("0.20.2", "0.22.0"),
    "one-block-for-two-groups": ("0.20.2", "0.26.0"),
    "loaded-requests-wait-for-each-other": ("0.20.2", "0.23.0"),
    "loaded-request-stranded-behind-the-queue-head": ("0.20.2", "0.33.0"),
    "hit-longer-than-the-cached-attention": ("0.20.2", "0.26.0"),
    "window-block-freed-before-the-drafts-are-verified": ("0.20.2", "0.26.0"),
    "whole-prompt-load-misses-a-window-block": ("0.20.2", None),
    "failed-load-blocks-the-queue": ("0.23.0", None),
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
    assert {path.stem for path in OPLOGS.iterdir()} == {*BUGS, *BUGS_OF_THE_NEWEST}
