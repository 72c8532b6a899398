"""Fixtures of the tests of servers."""

from collections.abc import Sequence

import pytest

from swarden.harness.core.driver import Driver
from swarden.harness.core.ops import Op
from swarden.harness.core.replay import run_log
from tests.harness.servers.some_servers import log_at


@pytest.fixture
def run(monkeypatch):
    """Runs ops on a server: run(url, ops, **settings)."""

    def run(url: str, ops: Sequence[Op], **settings: object) -> Driver:
        return run_log(log_at(monkeypatch, url, ops, **settings))

    return run
