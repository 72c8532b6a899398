"""The tree core in Rust answers beside the one in Python, and a different answer is a failure."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from swarden.harness.core.ops import Drain, Op, Step, Submit
from tests.engines.sglang.conftest import config_of, driver_of, laws_that_fail

RELEASE = "0.5.23"
PREFIX = tuple(range(1, 20))
LONG = tuple(range(100, 130))
REUSE: tuple[Op, ...] = (
    Submit(tokens=PREFIX, max_new_tokens=2),
    Step(count=8),
    Submit(tokens=(*PREFIX, 30), max_new_tokens=2),
    Submit(tokens=LONG, max_new_tokens=2),
    Step(count=8),
    Drain(),
)
BRANCH: tuple[Op, ...] = (
    Submit(tokens=LONG, max_new_tokens=2),
    Step(count=8),
    Submit(tokens=(*LONG[:12], 30), max_new_tokens=2),  # the window before it is gone but for the end of a chunk
    Drain(),
)


def failures(version: str, spoiled: str | None, spoil: Callable[[Any], Any], ops: tuple[Op, ...]) -> set[str]:
    """The failures of a run with both cores; the answers of the Rust core to the call `spoiled` are changed."""
    driver = driver_of(version, config_of(full_pages=40, host_ratio=1.0, rust_core=True))
    with pytest.MonkeyPatch.context() as changed:
        if spoiled is not None:
            kind = import_module("sglang.srt.mem_cache.rust_tree_core.adapter").RustUnifiedTreeCore
            call = getattr(kind, spoiled)
            changed.setattr(kind, spoiled, lambda *given: spoil(call(*given)))
        return laws_that_fail(driver, ops)


def one_less(size: int) -> int:
    return max(0, size - 1)


def without_branch(match: Any) -> Any:
    """As before pull 37584, whose field the adapter left out."""
    return match._replace(swa_branching_seqlen=None)


@pytest.mark.parametrize(
    ("spoiled", "spoil", "ops"),
    [("full_evictable_size", one_less, REUSE), ("match_prefix", without_branch, BRANCH)],
    ids=["size", "branch"],
)
def test_different_answer_of_the_rust_core_is_a_failure(on_release, spoiled, spoil, ops):
    assert on_release(RELEASE, failures, RELEASE, None, spoil, ops) == set()
    assert on_release(RELEASE, failures, RELEASE, spoiled, spoil, ops) == {"CoresDifferError"}
