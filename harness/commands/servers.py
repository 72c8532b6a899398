"""The options of commands that drive a server over HTTP."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial, wraps
from inspect import Parameter, signature
from math import isfinite
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec
import typer

from swarden.harness.commands.console import ERR
from swarden.harness.core.errors import UsageError
from swarden.harness.engines.server.adapter import MOST_AT_ONCE
from swarden.harness.engines.server.apis import APIS, api_of
from swarden.harness.engines.server.client import Call
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.engines.server.learning import learned
from swarden.harness.engines.server.process import Connection, Server, api_at, published, recorded
from swarden.harness.engines.server.target import connection
from swarden.harness.kit.settings import converted

NAME = "server"  # of the target
STEP_TIMEOUT_S = 1800.0  # a round has its own limit, which is of progress
REMOTE_RATE, LEAST_RATE, MOST_RATE = 10.0, 0.01, 1e6  # calls a second
HEADER_NAME, HEADER_VALUE = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII), re.compile(r"[ -~]+")
OF_THE_CLIENT = ("connection", "content-length", "content-type", "transfer-encoding")
server_option = partial(typer.Option, rich_help_panel="Server")
Url = Annotated[str | None, server_option("--url", help="drive the server there, over HTTP", metavar="URL")]
Restart = Annotated[
    str | None, server_option("--restart", help="starts the server anew, without a shell", metavar="COMMAND")
]
Headers = Annotated[
    list[str] | None,
    server_option("--header", help="a header of each call, from this environment variable", metavar="NAME=VARIABLE"),
]
ReferenceUrl = Annotated[
    str | None,
    server_option(
        "--reference",
        help="judges the answers: a server of this model, or a checkpoint for swarden's engine; itself by default",
        metavar="URL|DIR",
    ),
]
Remote = Annotated[bool, server_option("--allow-remote-host", help="the server may be on another machine")]
Rate = Annotated[
    float | None,
    server_option("--max-rate", min=0, help="calls a second; 10 with --allow-remote-host, else any number"),
]
ApiName = Annotated[
    str | None, server_option("--api", help=f"{', '.join(APIS)}; found by its pages by default", metavar="NAME")
]


class Known(NamedTuple):
    """The settings of all runs in JSON form, and the text about the server; "" without a server."""

    settings: dict[str, Any]
    line: str = ""


class ServerOptions(NamedTuple):
    """The options of a server on the command line; `settings` are those of --set."""

    url: Url
    api: ApiName = None
    restart: Restart = None
    header: Headers = None
    reference: ReferenceUrl = None
    allow_remote_host: Remote = False
    max_rate: Rate = None
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

    def learn(self, fixed: Mapping[str, Any], seconds: float) -> Known:
        """The settings of the published server, which are shown before the first run.

        The server is started if necessary, and ended again.  `fixed` settings take precedence; without a server they
        are the only ones.  First of all the bounds for `seconds` are printed.
        """
        if self.url is None:
            return Known(dict(fixed))
        converted(fixed, ServerConfig)  # before anything is asked of the server
        server = connection()
        ERR.print(self.bounds(server, seconds), markup=False, soft_wrap=True)
        with closing(server):
            server.renew(api_of("openai"))  # starts it; the first run flushes it
            if not (metrics := Call(server.address).page("/metrics")).status:
                raise UsageError(f"{server.address.shown}/metrics: {metrics.error}")
            try:
                api = api_of(self.api or fixed.get("api") or api_at(server.address))
                server.resume(api)  # a campaign that was killed may have left it paused
                found = learned(server, api, fixed)
            except UsageError as error:
                log, text = recorded(server), server.address.secrets.masked(str(error))
                is_inside = f"; the strict check inside has failed: swarden replay {log}" if log is not None else ""
                raise UsageError(f"{text}{is_inside}") from error
        line = f"{server.address.shown}, API {found.settings['api']}: {found.line}"
        ERR.print(line, markup=False, soft_wrap=True)
        return Known(msgspec.to_builtins(found.settings), line)

    @property
    def words(self) -> list[str]:
        """The options that drive the server again, without secrets, and without what the server reports."""
        if self.url is None:
            return []
        server = published()
        options = {"--url": self.url, "--api": self.api, "--restart": server.masked_restart}
        options |= {
            "--reference": self.reference,
            "--max-rate": None if self.max_rate is None else f"{self.max_rate:g}",
        }
        words = [word for name, value in options.items() if value for word in (name, value)]
        words += [word for one in self.header or () for word in ("--header", one)]
        words += [word for one in self.settings or () for word in ("--set", one)]
        return words + ["--allow-remote-host"] * self.allow_remote_host


NONE = ServerOptions(None)


def over_http(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a server to a command, which gets them as its `server`; one without it finds it published.

    The latter replays op-logs, which name the API.
    """
    own = signature(command, eval_str=True)
    gets_server = "server" in own.parameters
    left_out = {"settings"} if gets_server else {"settings", "api"}
    hints = get_type_hints(ServerOptions, include_extras=True).items()
    added = {name: kind for name, kind in hints if name not in left_out}

    @wraps(command)
    def with_server(*arguments: Any, **options: Any) -> None:
        server = ServerOptions(**{name: options.pop(name, None) for name in added})
        if gets_server:
            options["server"] = server
        else:
            server.publish()
        command(*arguments, **options)

    kept = [one for name, one in own.parameters.items() if name != "server"]
    defaults = ServerOptions._field_defaults
    more = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=kind)
        for name, kind in added.items()
    ]
    with_server.__signature__ = own.replace(parameters=[*kept, *more])  # type: ignore[attr-defined]  # of `inspect`
    with_server.__annotations__ = {one.name: one.annotation for one in [*kept, *more]}
    return with_server


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
