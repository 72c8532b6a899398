"""HTTP to a server that may hang, lie, close connections or answer without end: every answer is bounded."""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from math import inf
from threading import TIMEOUT_MAX, Lock, Timer
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.printable import printable
from swarden.harness.engines.server.masking import Secrets

ANSWER_S = 900.0  # for a whole answer outside of a round
MOST_BYTES = 1 << 26  # of one answer
MOST_LINE = 1 << 22
MOST_CHUNKS = 1 << 16
MOST_URL = 200  # characters
CONNECT_S, QUICK_S = 10.0, 60.0  # to open a connection; for a call that computes nothing
DATA, DONE = b"data:", b"[DONE]"
LAST = (b'"stop":true', b'"finish_reason":"')  # in the last object where no DONE follows: llama.cpp, transformers


class Reply(NamedTuple):
    """The answer to a call: its status, 0 if the connection has failed; the JSON objects in order, or the error."""

    status: int
    chunks: Sequence[dict[str, Any]] = ()
    error: str = ""
    is_cut: bool = False  # by this client


@dataclass
class Calls:
    """The calls of all threads: at most so many a second, 0 for any number; those that have not ended are open."""

    per_second: float = 0.0
    open: "set[Call]" = field(default_factory=set)
    _next_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def wait(self) -> None:
        if self.per_second:
            with self._lock:
                self._next_s = max(monotonic(), self._next_s) + 1 / self.per_second
                wait_s = self._next_s - monotonic()
            sleep(max(0.0, wait_s))


class Address(NamedTuple):
    """Where a server is, the headers of each call, its calls, and what no text of it may show."""

    url: str
    headers: Mapping[str, str] = {}
    calls: Calls = Calls()
    secrets: Secrets = Secrets()

    def cut(self) -> None:
        """End all open calls, also those that have no connection yet."""
        for call in [*self.calls.open]:
            with suppress(OSError):
                call.cut()

    @property
    def shown(self) -> str:
        """The URL as text; it has no secrets, because `check` refuses a user and a query."""
        return printable(self.url[:MOST_URL])

    def check(self, *, remote: bool, option: str = "--url") -> None:
        """Raise UsageError unless this is the URL of a server on this machine, or of any with `remote`."""
        if {*"@?#"} & {*self.url}:
            raise UsageError(f"{option}: has a user or a query; give secrets by --header, which reads the environment")
        try:
            parts = urlsplit(self.url)
            if (
                parts.scheme not in ("http", "https")
                or not parts.hostname
                or not re.fullmatch(rf"[!-~]{{,{MOST_URL}}}", self.url)
            ):
                raise ValueError("no URL of a server")
            infos = socket.getaddrinfo(parts.hostname, parts.port)
        except (ValueError, OSError) as error:  # ValueError: also of a name, or a port that is out of range
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)[:MOST_URL]
            raise UsageError(f"{option}: {self.shown!r}: {why}; want http://HOST:PORT") from error
        if not remote and not all(ipaddress.ip_address(info[4][0]).is_loopback for info in infos):
            raise UsageError(
                f"{option}: {self.shown} is not on this machine; give --allow-remote-host if you may load it"
            )


class Call:
    """One call, in any thread; `cut` ends it from another one."""

    def __init__(self, address: Address, on_chunk: Callable[[], None] = lambda: None) -> None:
        self._base = urlsplit(address.url).path.rstrip("/")
        self._headers = {"Content-Type": "application/json", "Connection": "close", **address.headers}
        self._connection = _connection(address, CONNECT_S)
        self._socket: socket.socket | None = None  # which the connection forgets when the answer begins
        self._is_cut = False
        self._on_chunk = on_chunk
        self._calls = address.calls
        self._secrets = address.secrets

    def cut(self) -> None:
        self._is_cut = True
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_RDWR)

    def made(
        self, method: str, path: str, body: Any = None, *, most_chunks: int | None = None, limit_s: float = ANSWER_S
    ) -> Reply:
        """Make the call.  After `most_chunks` of a stream the connection is closed, as by a client that goes away.

        With 0 that is at once, before the server has answered.  The whole answer has `limit_s`; without a limit, the
        caller cuts the call.
        """
        self._calls.open.add(self)
        try:
            reply = self._done(method, path, body, most_chunks, limit_s)
            return reply._replace(error=self._secrets.masked(reply.error))
        finally:
            self._calls.open.discard(self)

    def _done(self, method: str, path: str, body: Any, most_chunks: int | None, limit_s: float) -> Reply:
        self._calls.wait()
        until = monotonic() + limit_s
        try:
            with closing(self._connection) as connection, _connected(connection, limit_s) as self._socket:
                if self._is_cut:  # before there was a socket
                    return Reply(0, error="cut before it was made")
                data = None if body is None else msgspec.json.encode(body)
                connection.request(method, self._base + path, data, self._headers)
                if most_chunks == 0:
                    return Reply(200, is_cut=True)
                reply = self._read(connection.getresponse(), most_chunks)
        except (OSError, HTTPException) as error:
            reply = Reply(0, error=f"{type(error).__name__}: {error}")
        return reply if monotonic() < until else Reply(0, error=f"no whole answer in {limit_s:g} s")

    def _read(self, response: HTTPResponse, most_chunks: int | None) -> Reply:
        chunks: list[dict[str, Any]] = []
        if response.status != 200:
            return Reply(response.status, error=printable(response.read(2000).decode(errors="replace")))
        try:
            objects = _Objects(response)
            for data in objects:
                if most_chunks is not None and len(chunks) >= most_chunks:
                    return Reply(200, chunks, is_cut=True)
                chunks.append(msgspec.json.decode(data, type=dict[str, Any]))
                if error := chunks[-1].get("error"):  # in a stream that has begun
                    code = error.get("code") if isinstance(error, dict) else None
                    return Reply(code if isinstance(code, int) else 500, chunks[:-1], printable(str(error)[:2000]))
                self._on_chunk()
                if len(chunks) > MOST_CHUNKS:
                    raise ValueError(f"more than {MOST_CHUNKS} objects")
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            return Reply(0, chunks, f"an answer that cannot be read: {error}")
        if not objects.is_whole:
            return Reply(0, chunks, "the answer ends before its end")
        return Reply(200, chunks)


class _Objects:
    """The JSON objects of a stream of events, or the one object of another answer; ValueError if it is too long.

    An answer `is_whole` if its last event says so, or if it is one object.
    """

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response
        self.is_whole = False

    def __iter__(self) -> Iterator[bytes]:
        response, total = self._response, 0
        if "event-stream" not in (response.getheader("Content-Type") or ""):
            body = response.read(MOST_BYTES + 1)
            if len(body) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes")
            self.is_whole = True
            if body.strip():
                yield body
            return
        while line := response.readline(MOST_LINE + 1):
            total += len(line)
            if len(line) > MOST_LINE or total > MOST_BYTES:
                raise ValueError(f"more than {MOST_LINE} bytes in a line, or {MOST_BYTES} in all")
            if line.startswith(DATA) and (data := line.removeprefix(DATA).strip()):
                self.is_whole |= data == DONE
                if data != DONE:
                    self.is_whole |= any(mark in data for mark in LAST)
                    yield data


def _connection(address: Address, timeout_s: float) -> HTTPConnection:
    parts = urlsplit(address.url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=timeout_s)


@contextmanager
def _connected(connection: HTTPConnection, limit_s: float) -> Iterator[socket.socket]:
    """The socket, which ends after so many seconds: its own timeout begins anew with each byte that comes."""
    connection.connect()
    found: socket.socket = connection.sock
    found.settimeout(None if limit_s == inf else limit_s)

    def end() -> None:
        with suppress(OSError):
            found.shutdown(socket.SHUT_RDWR)

    timer = Timer(min(limit_s, TIMEOUT_MAX), end)
    timer.daemon = True
    timer.start()
    try:
        yield found
    finally:
        timer.cancel()


def text_at(address: Address, path: str) -> str | None:
    """The text of a page; None if there is none."""
    page = page_at(address, path, QUICK_S)
    return page.text if page.status == 200 else None


class Page(NamedTuple):
    """The status of a page, 0 if there is no answer; and its text, of any form."""

    status: int
    text: str = ""


def page_at(address: Address, path: str, limit_s: float) -> Page:
    address.calls.wait()
    try:
        with closing(_connection(address, min(CONNECT_S, limit_s))) as connection, _connected(connection, limit_s):
            connection.request("GET", urlsplit(address.url).path.rstrip("/") + path, headers=dict(address.headers))
            response = connection.getresponse()
            return Page(response.status, response.read(MOST_BYTES).decode(errors="replace"))
    except (OSError, HTTPException):
        return Page(0)
