"""Where a server may be, and how often it is called."""

from math import inf, nan

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.engines.server import client
from swarden.harness.engines.server.client import Address, Call, Calls, text_at
from swarden.harness.engines.server.options import ServerOptions
from swarden.harness.engines.server.process import Connection, Server
from tests.harness.servers.some_servers import server_with
from tests.harness.some_commands import swarden


def test_pages_and_calls_keep_their_pace(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(client, "monotonic", lambda: 100.0)
    monkeypatch.setattr(client, "sleep", slept.append)
    with server_with(lambda _: None) as url:
        address = Address(url, calls=Calls(4))
        for path in ("/health", "/metrics"):
            text_at(address, path)
        Call(address).made("POST", "/pause")

    assert slept == [0.25, 0.5, 0.75]


def test_call_that_is_cut_before_it_is_made_is_not_made():
    with server_with(lambda _: None) as url:
        call = Call(Address(url))
        call.cut()

        assert call.made("GET", "/health").error == "cut before it was made"


NO_URLS = """
http://[::1 http://[x]/ http://a..b:1 http://127.0.0.1:99999 http://127.0.0.1:-1 http://h:abc file:///etc 127.0.0.1:1
http://u:hun/ter2@127.0.0.1:1 http://u:hunter2@[::1 http://127.0.0.1?k=hunter2 http://127.0.0.1#hunter2 http://8.8.8.8:1
http://127.0.0.1/é http:// http://\udc80:1
"""
LONG_URLS = "http://127.0.0.1/" + "a" * 10_000, "http://" + "a" * 10_000 + ":1"


@pytest.mark.parametrize("url", [*NO_URLS.split(), *LONG_URLS, "", "http://127.0.0.1/ b", "http://127.0.0.1/\r\nX: y"])
@pytest.mark.parametrize("option", ["--url", "--reference"])
def test_url_that_is_none_is_one_line(url, option):
    with pytest.raises(UsageError, match=f"^{option}: ") as refused:
        Connection(Server(url, option=option))

    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()
    assert "ter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        *(({"header": ["X=V"]}, value) for value in ("a\nb", "a\rb", "v€", "vé", "x\udc80", "", " ")),
        *(({"header": [name]}, "hunter2") for name in ("X Y=V", "X\nY=V", "X:Y=V", "=V", "€=V", "Content-Length=V")),
        *(({"header": [text]}, "x") for text in ("X", "X: hunter2", "X: hunter2=", "X=MISSING")),
        *(({"max_rate": rate}, "x") for rate in (inf, nan, 1e-300, 1e300, -1.0)),
        *(({name: "\udc80"}, "x") for name in ("restart", "reference")),
    ],
)
def test_option_of_a_server_that_cannot_be_used_is_one_line(monkeypatch, options, value):
    monkeypatch.setenv("V", value)

    with pytest.raises(UsageError, match=r"^--") as refused:
        ServerOptions("http://127.0.0.1:1", **options).publish()

    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["fuzz", "nightly"])
def test_launch_line_that_cannot_be_read_is_one_line(tmp_path, name):
    run = swarden(name, "--url", "http://127.0.0.1:1", "--restart", "serve 'a", cwd=tmp_path)

    assert (run.returncode, run.stderr) == (2, "swarden: --restart: No closing quotation\n")
