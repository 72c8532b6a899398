"""A server that is started below the strict check: what that records is replayed and shrunk without the server."""

import shlex
import sys
from pathlib import Path

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import CheckFailed
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Recipe, Step, Submit
from swarden.harness.core.replay import run_log
from swarden.harness.engines.server import target
from swarden.harness.engines.server.process import VARIABLE, Server
from swarden.harness.search.findings import Reporting
from swarden.harness.search.result import Finding
from swarden.harness.search.shrink.shrink import ShrinkBudget
from tests.harness.servers.some_servers import free_port

LONG = [Submit(recipe=Recipe(path=(number,), stretch=300), max_new_tokens=2, namespace=number) for number in range(6)]
FAILING = Path("tests/quality/oplogs/B13.oplog").absolute()
OPS = [op for submit in LONG for op in (submit, Step())]


@pytest.fixture
def log(monkeypatch, tmp_path):
    """The op-log of a server with a planted bug, which this process starts, below the strict check."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("SWARDEN_STRICT_MEM_CHECK", "audit")
    port = free_port()
    serve = (sys.executable, "-m", "swarden.harness.cli", "serve", "--model", "tiny-gemma3", "--mutant", "B1")
    settings = ("--set", "full_pages=72", "--set", "swa_pages=24", "--port", str(port))
    target.connection.cache_clear()
    Server(f"http://127.0.0.1:{port}", shlex.join([*serve, *settings])).publish()
    yield OpLog(Header(engine="server", configs=[{"last_token": 60, "model": "swarden"}]), OPS)
    target.connection().close()
    target.connection.cache_clear()


def test_op_log_of_the_check_inside_is_shrunk_without_the_server(log, tmp_path):
    failure = run_log(log).failure

    assert failure is not None
    assert isinstance(failure.error, CheckFailed)
    assert failure.fingerprint == "CheckFailed/peers_are_unique_and_live-full-page-peer_free"
    target.connection().close()  # from here on nothing needs it
    finding = Finding(failure.fingerprint, log, 0.0, recorded=str(failure.error.log))
    report = Reporting(tmp_path / "findings", ShrinkBudget(cpu_seconds=60)).report(finding)
    assert report.inner is not None
    assert report.inner.ops < len(OPS)
    assert report.inner.log.header.engine == "swarden"
    assert report.is_confirmed
    assert f"replay: swarden replay {report.inner.path}" in map(str, report.story)


def test_recorded_op_log_of_an_engine_that_is_not_here_is_named(tmp_path):
    path = tmp_path / "recorded.oplog"
    path.write_text('{"format":3,"engine":"elsewhere","version":"1","configs":[{}]}\n')
    log = load_log(FAILING)
    failure = run_log(log).failure
    assert failure is not None
    finding = Finding(failure.fingerprint, log, 0.0, recorded=str(path))

    report = Reporting(tmp_path / "findings", ShrinkBudget(cpu_seconds=60)).report(finding)

    assert report.inner is None
    assert any("engine 'elsewhere' is not installed" in str(line) for line in report.story)
