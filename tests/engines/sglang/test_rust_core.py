"""The tree core in Rust answers beside the one in Python, and a different answer is a failure."""

from importlib import import_module

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


def failures(version: str, spoiled: str | None) -> set[str]:
    """The failures of a run with both cores; a size that is `spoiled` is one less in the Rust core."""
    driver = driver_of(version, config_of(full_pages=40, host_ratio=1.0, rust_core=True))
    with pytest.MonkeyPatch.context() as changed:
        if spoiled is not None:
            kind = import_module("sglang.srt.mem_cache.rust_tree_core.adapter").RustUnifiedTreeCore
            size = getattr(kind, spoiled)
            changed.setattr(kind, spoiled, lambda core: max(0, size(core) - 1))
        return laws_that_fail(driver, REUSE)


def test_different_answer_of_the_rust_core_is_a_failure(on_release):
    assert on_release(RELEASE, failures, RELEASE, None) == set()
    assert on_release(RELEASE, failures, RELEASE, "full_evictable_size") == {"CoresDifferError"}
