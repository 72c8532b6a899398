"""Options that several commands have."""

from typing import Annotated

import typer

EngineOption = Annotated[str, typer.Option(help="the engine, as NAME or NAME==VERSION; see 'swarden engines'")]
