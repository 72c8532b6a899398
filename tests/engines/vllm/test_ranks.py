"""Data-parallel ranks with their coordinator: the requests of each are served, whichever message is late."""

from functools import partial
from typing import Any

import pytest

from swarden.harness.core import replay
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Abort, Drain, Inject, Pause, Resume, Step, Submit
from swarden.harness.core.target import DATA_RANKS
from swarden.harness.engines.vllm.parts.ranks import CALL_LATE, REPORT_LATE, WAVE_LATE

FIRST, SECOND = [Submit(tokens=(100, 200, 300, 400 + rank), max_new_tokens=4) for rank in range(2)]  # by their rank
WAVE = [Step(count=8)] * 6  # until ranks without requests have agreed
LATE = (Inject(fault=CALL_LATE, count=5, rank=0), Inject(fault=WAVE_LATE, count=5, rank=1))
TRAFFIC = {
    "idle": (FIRST, *WAVE, SECOND, *WAVE, Drain()),
    "late": (SECOND, *LATE, FIRST, Step(count=4), Inject(fault=REPORT_LATE, count=9), *WAVE, SECOND, FIRST, Drain()),
    "pause": (SECOND, Step(count=3), Pause(), FIRST, *LATE, *WAVE, SECOND, Step(count=4), Resume(), Drain()),
    "early resume": (FIRST, SECOND, Step(count=3), Pause(), Step(), Resume(), Abort(request=1), *WAVE, Drain()),
}


def run_of(release, ops, **settings):
    """The text of the error of a run, its digests, and the number of requests of each rank."""
    config = {"windows": [], "ranks": 2, **settings}
    driver = replay.driver_of(Header(engine=f"vllm=={release}", machine=DATA_RANKS, configs=[config]))
    for op in ops:
        driver.apply(op)
    systems: list[Any] = [*driver.systems]
    error = str(driver.failure.error or driver.failure.fingerprint) if driver.failure else None
    return error, driver.digests, [len(system.submitted) for system in systems]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("traffic", TRAFFIC)
def test_all_requests_are_served(on_release, traffic, asynchronous):
    run = partial(run_of, "0.33.0", TRAFFIC[traffic], asynchronous=asynchronous)
    (error, digests, served), again = on_release("0.33.0", run), on_release("0.33.0", run)

    assert error is None
    assert min(served) > 0
    assert again == (None, digests, served)


def test_request_in_a_sleep_starts_a_forward_in_an_old_release(on_release):
    ops = (Pause(), *WAVE, FIRST, Step(count=8), Resume(), Drain())
    old, new = [on_release(name, partial(run_of, name, ops, sleeps=True))[0] for name in ("0.20.2", "0.33.0")]

    assert "whose weights and kv_cache are released" in old
    assert new is None


def test_rank_that_waits_for_a_request_is_found(on_release):
    """The coordinator of 0.33.0 without the message that wakes the other rank."""
    error, *_ = on_release("0.33.0", run_unwoken, (FIRST, Step(count=8)))

    assert "rank 0 is in forward of a batch" in error
    assert "rank 1 is in no collective" in error


@pytest.mark.parametrize("setting", [{"draft_len": 2}, {"external_len": 4}])
def test_ranks_have_no_further_capability(on_release, setting):
    with pytest.raises(InvalidConfig, match="no further capability"):
        on_release("0.33.0", partial(run_of, "0.33.0", (), **setting))


def run_unwoken(ops):
    from vllm.v1.engine.coordinator import DPCoordinatorProc  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DPCoordinatorProc, "_send_start_wave", staticmethod(lambda *_: None))
        return run_of("0.33.0", ops)
