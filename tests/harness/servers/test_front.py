"""Our engine behind HTTP."""

from types import SimpleNamespace
from typing import Any

import pytest

from swarden.engine_under_test.sampling import SamplingParams
from swarden.harness.front.loop import Asked, EngineThread
from swarden.invariants.events import FinishReason


@pytest.mark.parametrize(("has_faults", "status"), [(False, 500), (True, 503)])
def test_request_without_a_token_is_an_error_unless_a_fault_is_armed(has_faults, status):
    engine: Any = SimpleNamespace(has_work=False, submit=lambda *_, **__: 1)
    served = EngineThread(engine, has_faults=has_faults).submit(Asked([5], SamplingParams(4)))
    served.ended = FinishReason.OUT_OF_MEMORY

    assert served.error_status == status
