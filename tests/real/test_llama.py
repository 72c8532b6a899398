"""The bugs of llama.cpp's server, as the user starts it: SWARDEN_LLAMA has the command, with PORT for the port.

The server has one slot, and a model with sliding windows.
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


@pytest.mark.skipif(COMMAND not in os.environ, reason=f"{COMMAND} is not set")
@pytest.mark.parametrize("shown", op_logs_of("server"), ids=str)
def test_op_log_fails_with_the_default_options(monkeypatch, tmp_path, shown):
    monkeypatch.chdir(tmp_path)
    Server(f"http://127.0.0.1:{PORT}", os.environ[COMMAND].replace("PORT", PORT)).publish()

    with closing(connection()):
        assert repeat(load_log(shown.path)).verdict is Verdict.FAILED
