"""The options by which a command drives a server over HTTP."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from swarden.harness.core.errors import UsageError
from swarden.harness.engines.server.adapter import MOST_AT_ONCE
from swarden.harness.engines.server.apis import api_of
from swarden.harness.engines.server.client import Call
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.engines.server.learning import learned
from swarden.harness.engines.server.masking import masked
from swarden.harness.engines.server.process import Connection, Server, api_at, recorded
from swarden.harness.engines.server.target import connection
from swarden.harness.kit.settings import converted

REMOTE_RATE, LEAST_RATE, MOST_RATE = 10.0, 0.01, 1e6  # calls a second
HEADER_NAME, HEADER_VALUE = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII), re.compile(r"[ -~]+")
WITHOUT_RESTART = (
    "without --restart no server is started: a failure that comes again on this server is shrunk; one that ends it, or "
    "that only a new server shows, is kept as it was found"
)
OF_THE_CLIENT = ("connection", "content-length", "content-type", "transfer-encoding")


class Known(NamedTuple):
    """The settings of all runs in JSON form, and the text about the server; "" without a server."""

    settings: dict[str, Any]
    line: str = ""


@dataclass(frozen=True)
class ServerOptions:
    """The options of a server on the command line; `header` and `settings` are the texts of --header and --set."""

    url: str | None = None
    api: str | None = None
    restart: str | None = None
    header: Sequence[str] | None = None
    reference: str | None = None
    allow_remote_host: bool = False
    max_rate: float | None = None
    settings: Sequence[str] | None = None

    def publish(self) -> bool:
        """Make the server known to the runs of this command; returns whether there is one."""
        if self.url is None:
            for option, value in (("--restart", self.restart), ("--header", self.header), ("--api", self.api)):
                if value:
                    raise UsageError(f"{option}: is for a server; give --url too")
            return False
        headers, rate = dict(map(_header, self.header or ())), self.max_rate
        rate = REMOTE_RATE * self.allow_remote_host if rate is None else rate
        if rate and not LEAST_RATE <= rate <= MOST_RATE:
            raise UsageError(f"--max-rate: {rate:g}; want {LEAST_RATE:g} to {MOST_RATE:g}, or 0 for any number")
        Server(self.url, self.restart or "", headers, self.reference or "", self.allow_remote_host, rate).publish()
        return True

    def bounds(self, server: Connection, seconds: float) -> str:
        """The most calls that the server can get in `seconds`, as text."""
        rate = server.server.rate
        pace = f"{rate:g} a second" if rate else "as fast as they are answered (--max-rate bounds it)"
        in_all = f", {rate * seconds:,.0f} in all" if rate and isfinite(seconds) else ""
        sleep = """; it may be sent to sleep, without --set 'left_out=["sleep"]'"""
        return f"{server.address.shown} gets at most {MOST_AT_ONCE} calls at the same time, {pace}{in_all}{sleep}"

    @contextmanager
    def resumed(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """Resume the server after the body: a worker that was killed may have left it paused."""
        try:
            yield
        finally:
            if self.url is not None:
                connection().resume(api_of(settings["api"]))

    def learn(self, fixed: Mapping[str, Any], seconds: float, note: Callable[[str], None]) -> Known:
        """The settings of the published server, which are noted before the first run.

        The server is started if necessary, and ended again.  `fixed` settings take precedence; without a server they
        are the only ones.  First of all the bounds for `seconds` are noted.
        """
        if self.url is None:
            return Known(dict(fixed))
        converted(fixed, ServerConfig)  # before anything is asked of the server
        server = connection()
        note(self.bounds(server, seconds))
        if self.restart is None:
            note(WITHOUT_RESTART)
        with closing(server):
            server.renew(api_of("openai"))  # starts it; the first run flushes it
            if not (metrics := Call(server.address).page("/metrics")).status:
                raise UsageError(f"{server.address.shown}/metrics: {metrics.error}")
            try:
                api = api_of(self.api or fixed.get("api") or api_at(server.address))
                server.resume(api)  # a campaign that was killed may have left it paused
                server_settings = learned(server, api, fixed)
            except UsageError as error:
                log, text = recorded(server), server.address.secrets.masked(str(error))
                is_inside = f"; the strict check inside has failed: swarden replay {log}" if log is not None else ""
                raise UsageError(f"{text}{is_inside}") from error
        line = f"{server.address.shown}, API {server_settings.settings['api']}: {server_settings.line}"
        note(line)
        return Known(msgspec.to_builtins(server_settings.settings), line)

    @property
    def words(self) -> list[str]:
        """The options that drive the server again, without secrets, and without what the server reports."""
        if self.url is None:
            return []
        rate = None if self.max_rate is None else f"{self.max_rate:g}"
        options = {"--url": self.url, "--api": self.api, "--restart": masked(self.restart or "")}
        options |= {"--reference": self.reference, "--max-rate": rate}
        words = [word for name, value in options.items() if value for word in (name, value)]
        words += [word for header in self.header or () for word in ("--header", header)]
        words += [word for setting in self.settings or () for word in ("--set", setting)]
        return words + ["--allow-remote-host"] * self.allow_remote_host


def _header(text: str) -> tuple[str, str]:
    name, _, variable = text.partition("=")
    if variable not in os.environ:  # the text can be the header itself, with its secret
        raise UsageError("--header: no variable of the environment; want NAME=VARIABLE")
    if not HEADER_NAME.fullmatch(name) or name.lower() in OF_THE_CLIENT:
        raise UsageError(f"--header: {name!r} is no name of a header, or of one that swarden sets")
    value = os.environ[variable].strip()
    if not HEADER_VALUE.fullmatch(value):
        raise UsageError(f"--header: {name!r}: the variable is empty, or has characters that no header can have")
    return name, value
