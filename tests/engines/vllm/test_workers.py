"""Several workers of one scheduler end a load or a save at different times, and the release's aggregator waits."""

from typing import Any

import pytest

from swarden.harness.core import replay
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Drain, Inject, Step, Submit
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.connector import LOAD_FAILS, LOAD_LATE, STORE_LATE
from swarden.harness.kit.settings import made

NEWEST = "0.33.0"
WORKERS = {"windows": (), "external_len": 16, "late_loads": True, "saves": True, "workers": 3}


def failure_of(engine, fault, counted):
    """The fingerprint of the failure, if there is one; the fault is of the second worker, `counted` of them end."""
    driver = replay.driver_of(Header(engine=engine, configs=[WORKERS]))
    system: Any = driver.systems[0]
    system.port.runner.loads._aggregator._expected_finished_count = counted
    request = Submit(tokens=tuple(range(1, 30)), max_new_tokens=2)
    for op in (Inject(fault=fault, skip=1), request, Step(count=8), Step(count=8), request, Drain()):
        driver.apply(op)
    return driver.failure and driver.failure.fingerprints[0]


@pytest.mark.parametrize("fault", [LOAD_LATE, LOAD_FAILS, STORE_LATE])
def test_load_or_save_ends_with_its_last_worker(on_release, fault):
    assert on_release(NEWEST, failure_of, f"vllm=={NEWEST}", fault, 3) is None


@pytest.mark.parametrize("fault", [LOAD_LATE, STORE_LATE])
def test_end_with_the_first_worker_is_found(on_release, fault):
    assert on_release(NEWEST, failure_of, f"vllm=={NEWEST}", fault, 1) is not None


def test_workers_need_loads_in_the_background():
    with pytest.raises(InvalidConfig, match="late_loads"):
        made(VllmConfig, {"external_len": 16, "workers": 2})
