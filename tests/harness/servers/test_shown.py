"""Op-logs of servers are shown, and are programs, without a call to the address that they name."""

import subprocess
import sys

import pytest

from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.ops import Abort, Recipe, Step, Submit
from swarden.harness.engines.server.program import program_of
from swarden.harness.report.program import program_text
from tests.harness.servers.some_servers import log_at, server_with
from tests.harness.servers.test_misbehaving import error
from tests.harness.some_commands import swarden

NAME = "valid_requests_are_answered/request/server_error"
HOSTILE = "http://127.0.0.1:1/'+__import__('os').system('id')+'<script>\x1b[31m"
OPS = (Submit(recipe=Recipe(path=(1, 2))), Abort(request=0), Step(), Step(), Submit(), Step())


@pytest.fixture
def path(tmp_path):
    """An op-log of a server at an address that a stranger has written."""
    header = Header(engine="server", configs=[{"url": HOSTILE, "launch": "touch started"}], expected=NAME)
    path = tmp_path / "found.oplog"
    path.write_bytes(OpLog(header, list(OPS)).to_bytes())
    return path


def test_log_of_a_server_is_shown_without_the_server(path, tmp_path):
    shown = swarden("show", path, cwd=tmp_path)
    page = swarden("show", path, "--html", cwd=tmp_path)

    assert (shown.returncode, page.returncode) == (0, 0), shown.stderr + page.stderr
    assert f"{NAME}: A valid request is answered up to its length" in shown.stdout
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert [(row[0], row[-1]) for row in rows if row and row[0].isdigit()] == [*zip("123456", "111233", strict=True)]
    html = path.with_suffix(".html").read_text()
    assert "A valid request is answered up to its length" in html
    assert "<script" not in html
    assert "\x1b" not in html + shown.stdout
    assert not (tmp_path / "started").exists()


def test_state_of_a_server_is_not_shown(path, tmp_path):
    shown = swarden("show", path, "--step", 1, cwd=tmp_path)

    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
    assert "leave out --step" in shown.stderr


def test_program_calls_no_address_but_that_of_its_command_line(monkeypatch, tmp_path):
    client, calls = tmp_path / "client.py", list[str]()

    def fails(handler):
        calls.append(handler.path)
        error(handler)

    with server_with(fails) as url:
        client.write_text(program_text(program_of(log_at(monkeypatch, url, (Submit(), Step()), url=HOSTILE)), "", ""))
        calls.clear()
        named = subprocess.run([sys.executable, client, url], capture_output=True, text=True, check=False)
        number = len(calls)
        unnamed = subprocess.run([sys.executable, client], capture_output=True, text=True, check=False)

    assert (named.returncode, number) == (1, 1), named.stderr
    assert (unnamed.returncode, unnamed.stdout, len(calls)) == (2, "", 1)
    assert unnamed.stderr.startswith("usage: ")
