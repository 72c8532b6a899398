"""The options of commands that drive a server over HTTP."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer

from swarden.harness.commands.console import ERR
from swarden.harness.commands.help import traffic_option
from swarden.harness.core.errors import UsageError
from swarden.harness.core.registry import OWN, UnknownEngine, installed, target_of
from swarden.harness.core.target import Launch
from swarden.harness.engines.server.apis import APIS
from swarden.harness.engines.server.options import ServerOptions
from swarden.harness.kit.launch import Line
from swarden.harness.search.fixed_settings import assignments

LAUNCH = traffic_option("--launch", help="the settings of a server, by the line that launches it", metavar="COMMAND")


def launched(text: str | None, engines: Sequence[str], url: str | None = None) -> tuple[list[str], Launch]:
    """The engine of a launch line, by default its newest release, and its settings, which are printed.

    Without a line, these engines and no settings.
    """
    if text is None:
        return [*engines], Launch()
    if url is not None or len(engines) > 1:
        raise UsageError("--launch: is for one engine in this process; leave out --url and further ones of --engine")
    program, servers = Line(text).program, dict[str, Sequence[str]]()
    for name in installed().keys() - {OWN}:
        with suppress(UnknownEngine):
            servers[name] = target_of(name).servers
    names = sorted([name for name, programs in servers.items() if program in programs])
    if not names:
        wanted = ", ".join(sorted(set[str]().union(*servers.values())))
        raise UsageError(f"--launch: {program!r} is no program of a server that is driven; want one of {wanted}")
    [engine] = engines or names[:1]
    if engine.partition("==")[0] not in names:
        raise UsageError(f"--launch: {program!r} is a server of {' or '.join(names)}, not of {engine}")
    target = target_of(engine)
    target.check_environment()
    launch = target.launched(text)
    differing = {name: value for name, value in launch.settings.items() if value != target.defaults[name]}
    note(f"--launch: {target.process}, machine {launch.machine}: {', '.join(assignments(differing))}")
    note(f"not driven: {', '.join(launch.not_driven) or 'nothing'}")
    return [engine], launch


NAME, NONE = "server", ServerOptions()  # the name of the target; no server
STEP_TIMEOUT_S = 1800.0  # the limit of a round, which counts progress, ends a hung round earlier
server_option = partial(typer.Option, rich_help_panel="Server")
OF_LOGS = {  # by the fields of ServerOptions; an op-log names the API
    "url": server_option("--url", help="drive the server there, over HTTP", metavar="URL"),
    "restart": server_option("--restart", help="starts the server anew, without a shell", metavar="COMMAND"),
    "header": server_option(
        "--header", help="a header of each call, from this environment variable", metavar="NAME=VARIABLE"
    ),
    "reference": server_option(
        "--reference",
        help="judges the answers: a server of this model, or a checkpoint for swarden's engine; itself by default",
        metavar="URL|DIR",
    ),
    "allow_remote_host": server_option("--allow-remote-host", help="the server may be on another machine"),
    "max_rate": server_option("--max-rate", min=0, help="calls a second; 10 with --allow-remote-host, else any number"),
}
API = server_option("--api", help=f"{', '.join(APIS)}; found by its pages by default", metavar="NAME")
OfLogs = Annotated[ServerOptions, OF_LOGS]
OfRuns = Annotated[ServerOptions, OF_LOGS | {"api": API}]
note = partial(ERR.print, soft_wrap=True)  # prints what is learned of a server
