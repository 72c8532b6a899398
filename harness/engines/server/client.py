"""HTTP to a server that may hang, lie, close connections or answer without end: every answer is bounded."""

import ipaddress
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from io import BufferedReader, RawIOBase
from math import inf
from threading import Lock
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.core.printable import printable
from swarden.harness.engines.server.answers import ErrorCode, Event, WrongForm, decoded
from swarden.harness.engines.server.masking import Secrets
from swarden.harness.kit.dialects import DATA, DONE

ANSWER_S = 900.0  # for a whole answer outside of a round
MOST_BYTES = 1 << 26  # of one answer, with its framing
MOST_OF_PAGE = MOST_LINE = 1 << 22
MOST_OF_HEAD = 1 << 17  # limit of all heads before an answer, and of the trailers after it
MOST_CHUNKS, MOST_LINES = 1 << 16, 1 << 18
MOST_URL = 200  # characters
CONNECT_S, QUICK_S = 10.0, 60.0  # to open a connection; for a call that computes nothing
HEX = b"0123456789abcdefABCDEF"
NO_ERROR = (b"null", b"false", b'""', b"{}")
LAST = (b'"stop":true', b'"finish_reason":"')  # in the last object where no DONE follows: llama.cpp, transformers


class Reply(NamedTuple):
    """The answer to a call: its status, 0 if there is none; the JSON objects in order, or a page; or the error."""

    status: int
    chunks: Sequence[bytes] = ()
    error: str = ""
    is_cut: bool = False  # by this client

    @property
    def text(self) -> str:
        return b"".join(self.chunks).decode(errors="replace")


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
            if not parts.hostname or not re.fullmatch(rf"(?i:https?)://[!-~]{{1,{MOST_URL}}}", self.url):
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
    """One call, in any thread; `cut` ends it from another one.  The answer to an act is its status alone."""

    def __init__(self, address: Address, on_chunk: Callable[[], None] = lambda: None, *, is_act: bool = False) -> None:
        self._base = urlsplit(address.url).path.rstrip("/")
        self._headers = {"Content-Type": "application/json", "Connection": "close", **address.headers}
        self._address = address
        self._socket: socket.socket | None = None  # the connection forgets it when the answer begins
        self._is_cut, self._is_act = False, is_act
        self._on_chunk = on_chunk

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
        data = None if body is None else msgspec.json.encode(body)
        return self._done(method, path, data, limit_s, lambda connection: self._read(connection, most_chunks))

    def page(self, path: str, limit_s: float = QUICK_S) -> Reply:
        """Get a page of any form, as the one chunk of the reply."""
        return self._done("GET", path, None, limit_s, _page)

    def _done(
        self, method: str, path: str, data: bytes | None, limit_s: float, read: Callable[[HTTPConnection], Reply]
    ) -> Reply:
        self._address.calls.open.add(self)
        try:
            self._address.calls.wait()
            until = monotonic() + limit_s
            with closing(_connected(self._address, until)) as connection:
                self._socket = connection.sock
                if self._is_cut:  # before there was a socket
                    return Reply(0, error="cut before it was made")
                connection.request(method, self._base + path, data, self._headers)
                reply = read(connection)
        except (OSError, HTTPException) as error:  # the message quotes the server, such as its status line
            reply = Reply(0, error=f"{type(error).__name__}: {error}"[:300])
        finally:
            self._address.calls.open.discard(self)
        if monotonic() >= until:
            return Reply(0, error=f"no whole answer in {limit_s:g} s")
        return reply._replace(error=self._address.secrets.masked(printable(reply.error)))

    def _read(self, connection: HTTPConnection, most_chunks: int | None) -> Reply:
        if most_chunks == 0:
            return Reply(200, is_cut=True)
        response, chunks = connection.getresponse(), list[bytes]()
        if response.status != 200:
            return Reply(response.status, error=response.read(2000).decode(errors="replace"))
        if self._is_act:
            return Reply(200)
        try:
            for data in _objects(response):
                if most_chunks is not None and len(chunks) >= most_chunks:
                    return Reply(200, chunks, is_cut=True)
                event = decoded(data, Event)
                if (error := bytes(event.error)) not in NO_ERROR:  # in a stream that has begun
                    return Reply(_status_of(error), chunks, error[:2000].decode(errors="replace"))
                if (refused := event.refusal) is not None:
                    return Reply(refused.status_code or 0, chunks, (refused.message or "")[:2000])
                chunks.append(data)
                self._on_chunk()
                if len(chunks) > MOST_CHUNKS:
                    raise WrongForm(f"more than {MOST_CHUNKS} objects")
        except WrongForm as error:
            return Reply(0, chunks, f"an answer that cannot be read: {error}")
        return Reply(200, chunks)


def _objects(response: HTTPResponse) -> Iterator[bytes]:
    """The JSON objects of a stream of events, or the one object of another answer.

    WrongForm if a line is too long, or if the stream ends before an event that says that it is the last one.
    """
    if "event-stream" not in (response.getheader("Content-Type") or ""):
        if (body := _whole(response, MOST_BYTES)).strip():
            yield body
        return
    is_whole = False
    for _ in range(MOST_LINES):
        line = response.readline(MOST_LINE + 1)
        if len(line) > MOST_LINE:
            raise WrongForm(f"more than {MOST_LINE} bytes in a line")
        if not line and is_whole:
            return
        if not line:
            raise WrongForm("it ends before its end")
        if line.startswith(DATA) and (data := line.removeprefix(DATA).strip()):
            is_whole |= data == DONE or any(mark in data for mark in LAST)
            if data != DONE:
                yield data
    raise WrongForm(f"more than {MOST_LINES} lines")


def _status_of(error: bytes) -> int:
    """The status that an error inside of a stream names; 500 if it names none of an error."""
    try:
        return decoded(error, ErrorCode).code
    except WrongForm:
        return 500


class _Incoming(RawIOBase):
    """The bytes that a server sends until a time; HTTPException if they are more than the next part may have."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self._socket = connection
        self._raw = connection.makefile("rb", buffering=0)
        self._until = until
        self.begin(MOST_OF_HEAD)

    def begin(self, most_bytes: int) -> None:
        self._most = self._left = most_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if (left_s := self._until - monotonic()) <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(None if left_s == inf else left_s)
        size = self._raw.readinto(buffer)
        self._left -= size or 0
        if self._left < 0:
            raise HTTPException(f"more than {self._most} bytes")
        return size


class _Response(HTTPResponse):
    """A response whose bytes are counted.  The size of a chunk is digits alone: int() also reads -1, 0x1 and 1_0."""

    def __init__(self, connection: socket.socket, *, until: float, **options: Any) -> None:
        super().__init__(connection, **options)
        self._incoming, self._num_chunks = _Incoming(connection, until), 0
        self.fp = BufferedReader(self._incoming)

    def begin(self) -> None:
        super().begin()
        self._incoming.begin(MOST_BYTES)

    def _read_next_chunk_size(self) -> int:
        self._num_chunks += 1
        digits = self.fp.readline(MOST_OF_HEAD).partition(b";")[0].rstrip()
        if not 0 < len(digits) <= 16 or digits.strip(HEX) or (size := int(digits, 16)) > MOST_BYTES:
            raise HTTPException(f"a chunk of size {digits[:20]!r}")
        if self._num_chunks > MOST_LINES:
            raise HTTPException(f"more than {MOST_LINES} chunks")
        if size == 0:
            self._incoming.begin(MOST_OF_HEAD)
        return size


def _whole(response: HTTPResponse, most_bytes: int) -> bytes:
    """The body; HTTPException if it is too long, or cut off."""
    body = response.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise HTTPException(f"more than {most_bytes} bytes")
    if response.length:
        raise IncompleteRead(b"", response.length)
    return body


def _connected(address: Address, until: float) -> HTTPConnection:
    """A connection for one answer, which has this time."""
    parts = urlsplit(address.url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    limit_s = until - monotonic()
    connection = kind(parts.hostname or "", parts.port, timeout=min(CONNECT_S, limit_s))
    connection.response_class = partial(_Response, until=until)  # type: ignore[assignment]  # is called
    connection.connect()
    connection.sock.settimeout(None if limit_s == inf else limit_s)  # to send the request
    return connection


def _page(connection: HTTPConnection) -> Reply:
    response = connection.getresponse()
    return Reply(response.status, [_whole(response, MOST_OF_PAGE)])


def text_at(address: Address, path: str) -> str | None:
    """The text of a page; None if there is none."""
    page = Call(address).page(path)
    return page.text if page.status == 200 else None
