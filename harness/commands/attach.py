"""swarden attach: a command with the strict check attached to the schedulers that it starts."""

import json
import os
import shutil
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import typer

from swarden.harness.core.errors import UsageError
from swarden.harness.strict import hook
from swarden.harness.strict.recording import FOLDER_VARIABLE, record_mode
from swarden.harness.strict.required import RequiredCheck
from swarden.harness.strict.status import FOLDER

HOOK = Path(hook.__file__).parent  # the folder with the import hook
OUT = Path(".swarden/strict")


class Modules(NamedTuple):
    """The module of an engine's scheduler, and the module that attaches the check to it."""

    scheduler: str
    attachment: str


ENGINES = {
    "sglang": Modules("sglang.srt.managers.scheduler", "swarden.harness.engines.sglang.live"),
    "vllm": Modules("vllm.v1.core.sched.scheduler", "swarden.harness.engines.vllm.live"),
}


class Level(StrEnum):
    SUMS = "sums"
    AUDIT = "audit"
    CENSUS = "census"


class OnViolation(StrEnum):
    LOG = "log"
    RAISE = "raise"


def attach(
    engine: Annotated[str, typer.Argument(help="which engine: sglang or vllm")],
    command: Annotated[list[str], typer.Argument(help="the command, after --")],
    level: Annotated[Level, typer.Option(help="sums: counters add up; audit: moves of pages; census: all laws")] = (
        Level.AUDIT
    ),
    on_violation: Annotated[
        OnViolation, typer.Option(help="log the first violation of each kind, or raise it in the scheduler")
    ] = OnViolation.LOG,
    out: Annotated[Path, typer.Option(help="folder for op-logs", metavar="DIR", envvar=FOLDER_VARIABLE)] = OUT,
    require: Annotated[bool, typer.Option(help="end COMMAND, with exit code 2, if the check is not attached")] = False,
    require_seconds: Annotated[
        float, typer.Option(min=1, help="with --require: the time from the start, or the scheduler's import, to that")
    ] = 600,
) -> int:
    """Run COMMAND in place of this process; the check attaches to every scheduler of the engine that COMMAND starts.

    With --require this process stays as its parent, forwards signals, and has its exit code.
    """
    if engine not in ENGINES:
        raise UsageError(f"engine {engine!r} cannot be attached to; want {', '.join(ENGINES)}")
    record_mode(os.environ)
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"{command[0]}: no such program; name one after --")
    setting = {"level": level.value, "on_violation": on_violation.value, "out": str(out.resolve())}
    setting |= ENGINES[engine]._asdict()
    path = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "SWARDEN_ATTACH": json.dumps(setting)}
    if not require:
        os.execve(program, command, environment)
    with TemporaryDirectory(prefix="swarden-") as folder:
        environment["SWARDEN_ATTACH"] = json.dumps({**setting, FOLDER: folder})
        return RequiredCheck(Path(folder), seconds=require_seconds).run(command, environment)
