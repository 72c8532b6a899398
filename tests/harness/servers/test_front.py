"""Our engine behind HTTP."""

from types import SimpleNamespace
from typing import Any

import pytest

from swarden.engine_under_test.sampling import SamplingParams
from swarden.harness.front.faults import RandomFaults
from swarden.harness.front.loop import Asked, EngineThread
from swarden.invariants.events import FinishReason


@pytest.mark.parametrize(("names", "status"), [((), 500), (("pool.refuses",), 503)])
def test_request_without_a_token_is_an_error_unless_there_are_faults(names, status):
    engine: Any = SimpleNamespace(has_work=False, submit=lambda *_, **__: 1)
    served = EngineThread(engine, RandomFaults(names)).submit(Asked([5], SamplingParams(4)))
    served.ended = FinishReason.OUT_OF_MEMORY

    assert served.error_status == status


def test_fault_is_armed_by_the_first_flush():
    engine: Any = SimpleNamespace(has_work=False, flush=lambda: None)
    faults = RandomFaults(["pool.refuses"])
    loop = EngineThread(engine, faults)
    crossings = range(1000)
    before = any(faults.fires("pool.refuses") for _ in crossings)
    loop.flush()

    assert not before
    assert any(faults.fires("pool.refuses") for _ in crossings)
