"""The bugs of llama.cpp's server, as the user starts it: SWARDEN_LLAMA has the command, with PORT for the port.

The server has one slot, and a model with sliding windows; FLAGS stands for those of an op-log.
"""

import os
from contextlib import closing

import pytest

from swarden.harness.core.admission import load_log
from swarden.harness.core.replay import Verdict, repeat
from swarden.harness.engines.server.process import Server
from swarden.harness.engines.server.target import connection
from tests.engines.some_findings import op_logs_of

COMMAND, PORT = "SWARDEN_LLAMA", "8123"
SWA_FULL = "--swa-full"
BUGS = [one for one in op_logs_of("server") if one.bug.repository.startswith("ggml-org/")]


@pytest.mark.skipif(COMMAND not in os.environ, reason=f"{COMMAND} is not set")
@pytest.mark.parametrize("shown", BUGS, ids=str)
def test_op_log_fails_with_its_options(monkeypatch, tmp_path, shown):
    monkeypatch.chdir(tmp_path)
    log = load_log(shown.path)
    flags = SWA_FULL if SWA_FULL in log.header.configs[0]["launch"] else ""
    Server(f"http://127.0.0.1:{PORT}", os.environ[COMMAND].replace("PORT", PORT).replace("FLAGS", flags)).publish()

    connection.cache_clear()
    with closing(connection()):
        assert repeat(log).verdict is Verdict.FAILED
