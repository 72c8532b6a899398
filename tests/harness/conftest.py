"""A process that a function of this process starts is warm; one that a command in a process starts is as in use."""

import pytest

from swarden.harness.core import process
from tests.harness.warm_workers import WarmWorker


@pytest.fixture(autouse=True, scope="session")
def _warm_workers():
    cold = process._started
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(process, "_started", lambda other, ends: cold(other, ends) if other else WarmWorker(ends))
        yield
