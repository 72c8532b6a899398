"""A release gives each request a recurrent state, and copies one from the tree for a prefix that it reuses."""

import pytest

from harness.core.driver import Checking, Driver
from harness.core.ops import Drain, Op, Step, Submit
from harness.core.registry import target_of
from harness.core.target import ENGINE
from harness.engines.sglang.config import SglangConfig
from harness.engines.sglang.states import States
from invariants.catalog import catalog_of

RELEASE = "0.5.23"
PREFIX = tuple(range(1, 20))
REUSE: tuple[Op, ...] = (
    Submit(tokens=PREFIX, max_new_tokens=2),
    Step(count=8),
    Submit(tokens=(*PREFIX, 30), max_new_tokens=2),
    Step(count=8),
    Drain(),
)


def laws_that_fail(version: str, copies: bool) -> set[str]:
    """The laws that fail when a prompt follows its own prefix, where the model copies states or does not."""
    target = target_of(f"sglang=={version}")
    systems = target.systems(ENGINE, [SglangConfig(state_slots=12)], "")
    driver = Driver(systems, checking=Checking(catalog_of(target.contracts), code=target.code))
    with pytest.MonkeyPatch.context() as changed:
        if not copies:
            changed.setattr(States, "prepare", lambda *_: None)
        for op in REUSE:
            if driver.failure is None:
                driver.apply(op)
    return {print_.split("/")[0] for print_ in driver.failure.fingerprints} if driver.failure is not None else set()


def test_a_state_that_is_not_that_of_its_prefix_is_told(on_release):
    """Without the copies a pass computes from a foreign state; with them nothing fails."""
    assert on_release(RELEASE, laws_that_fail, RELEASE, True) == set()
    assert "slots_hold_their_prefix" in on_release(RELEASE, laws_that_fail, RELEASE, False)
