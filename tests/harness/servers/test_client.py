"""Where a server may be, how often it is called, and what is shown of its command."""

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.engines.server import client
from swarden.harness.engines.server.client import Pace
from swarden.harness.engines.server.process import Connection, Server


def test_calls_keep_their_pace(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(client, "monotonic", lambda: 100.0)
    monkeypatch.setattr(client, "sleep", slept.append)
    pace = Pace(4)

    for _ in range(3):
        pace.wait()

    assert slept == [0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("127.0.0.1:8000", "want http://HOST:PORT"),
        ("http://user:hunter2@127.0.0.1:8000", "has a user or a query"),
        ("http://:hunter2@127.0.0.1:8000", "has a user or a query"),
        ("http://127.0.0.1:99999", "want http://HOST:PORT"),
        ("http://10.0.0.1:8000", "is not on this machine"),
    ],
)
def test_url_that_is_not_of_this_machine_is_refused(url, text):
    with pytest.raises(UsageError, match=text) as refused:
        Connection(Server(url))

    assert "hunter2" not in str(refused.value)


def test_secrets_of_the_launch_line_are_masked():
    command = (
        "env HF_TOKEN=abc http_proxy=abc serve --api-key abc abc --auth-token=abc -H 'Authorization: abc' --port 8000"
    )
    server = Server("http://127.0.0.1:1", f"{command} pages=64 --max-num-batched-tokens 64 --tokenizer DIR")

    assert "abc" not in server.masked_restart
    assert server.masked_restart.endswith(" --port 8000 pages=64 --max-num-batched-tokens 64 --tokenizer DIR")
