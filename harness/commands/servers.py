"""The options of commands that drive a server over HTTP."""

from functools import partial
from typing import Annotated

import typer

from swarden.harness.commands.console import ERR
from swarden.harness.engines.server.apis import APIS
from swarden.harness.engines.server.options import ServerOptions

NAME, NONE = "server", ServerOptions()  # the name of the target; no server
STEP_TIMEOUT_S = 1800.0  # a round has its own limit, which is of progress
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
note = partial(ERR.print, markup=False, soft_wrap=True)  # prints what is learned of a server
