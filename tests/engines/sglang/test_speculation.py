"""A release decodes with drafts: it keeps the slots of those that were right, and the others leave nothing behind."""

from importlib import import_module
from typing import Any

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import Accept, Drain, Op, Step, Submit
from swarden.harness.engines.sglang.parts import drafts
from swarden.harness.engines.sglang.target import SglangTarget
from swarden.invariants.events import Verified
from tests.engines.sglang.conftest import RELEASES, config_of, driver_of, laws_that_fail

VERIFIED_IN_LAUNCH, OVERLAPPED = RELEASES
OPS: tuple[Op, ...] = (
    Accept(lengths=(2, 0, 3)),
    Submit(tokens=tuple(range(1, 20)), max_new_tokens=9),
    Submit(tokens=tuple(range(1, 21)), max_new_tokens=14),
    Step(count=8),
    Drain(),
)


def accepted_and_failed(
    version: str, writes_drafts: bool, overlap: bool = False, host_ratio: float | None = None
) -> tuple[set[int], set[str]]:
    """The numbers of drafts that were accepted, and the laws that fail, where the model writes drafts or does not."""
    accepted = set[int]()
    driver = driver_of(
        version,
        config_of(draft_len=3, overlap=overlap, host_ratio=host_ratio),
        observe=lambda change: accepted.update(event.num_accepted for event in change.events_of(Verified)),
    )
    with pytest.MonkeyPatch.context() as changed:
        if not writes_drafts:
            changed.setattr(drafts, "next_tag", lambda tag, _token: tag)
        failed = laws_that_fail(driver, OPS)
    return accepted, failed


def drafts_in_flight(version: str) -> bool:
    """Is a pass with drafts in flight between two steps?"""
    driver = driver_of(version, config_of(draft_len=3, overlap=True))
    laws_that_fail(driver, (OPS[1], Step(count=5)))
    return any(any(launch.drafts) for launch in driver.systems[0].capture().launches or ())


def ends_of_reads(version: str) -> tuple[bool, set[str]]:
    """Does a verification publish the end of its reads, and where the release ends those of a decode and of it."""
    release: Any = SglangTarget(version).booted()
    modes = import_module("sglang.srt.model_executor.forward_batch_info").ForwardMode
    ends = getattr(release.code("AttentionBackend"), "shared_read_ends", None)
    names = {ends(None, mode).name for mode in (modes.DECODE, modes.TARGET_VERIFY)} if ends is not None else set()
    return release.has("verification_ends_its_reads"), names


def test_reads_of_a_verification_end_where_those_of_a_decode_do(on_release):
    assert on_release(VERIFIED_IN_LAUNCH, ends_of_reads, VERIFIED_IN_LAUNCH) == (False, set())
    assert on_release(OVERLAPPED, ends_of_reads, OVERLAPPED) == (True, {"IN_REPLAY"})


def test_any_number_of_drafts_is_accepted(on_release, release):
    """The op says whether none, some or all drafts are accepted; every law holds."""
    assert on_release(release, accepted_and_failed, release, True) == ({0, 2, 3}, set())


def test_any_number_of_drafts_is_accepted_beside_a_host_tier(on_release, release):
    assert on_release(release, accepted_and_failed, release, True, False, 1.0) == ({0, 2, 3}, set())


def test_next_pass_is_launched_before_drafts_are_judged_with_overlap(on_release):
    assert on_release(OVERLAPPED, accepted_and_failed, OVERLAPPED, True, True) == ({0, 2, 3}, set())
    assert on_release(OVERLAPPED, drafts_in_flight, OVERLAPPED)


def test_release_that_verifies_in_the_launch_has_no_overlap(on_release):
    with pytest.raises(InvalidConfig, match="overlap"):
        on_release(VERIFIED_IN_LAUNCH, accepted_and_failed, VERIFIED_IN_LAUNCH, True, True)


def test_draft_that_was_not_written_is_found(on_release, release):
    assert "slots_hold_their_prefix" in on_release(release, accepted_and_failed, release, False)[1]
