"""swarden demo: a small engine with a planted leak is fuzzed, and the finding is shrunk, replayed and shown."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from swarden.harness.commands.console import OUT
from swarden.harness.commands.fuzz import fuzz
from swarden.harness.commands.replay import replay
from swarden.harness.commands.show import show
from swarden.harness.core.exit_codes import ExitCode

ENGINE, SEED = "demo", 2
OPENING = (
    "This engine serves requests with paged KV memory. An abort leaks a block, which no answer shows; after enough "
    "aborts the server is out of memory. Random traffic, with a check of all memory after each engine step, finds the "
    "leak within seconds."
)
CLOSING = """
Beside the op-log is a pytest file, to keep as a regression test. Fix the leak in {code}/engine.py, and replay the \
op-log: FIXED. Your own engine needs a target, 80 lines of code for this one: {code}/target.py

To go on, with torch (pip install 'swarden[engine]'):
  swarden fuzz                             swarden's own hybrid engine
  swarden engines install sglang==0.5.23
  swarden fuzz --engine sglang==0.5.23     SGLang's own scheduler and caches
  swarden engines install vllm==0.33.0
  swarden fuzz --engine vllm==0.33.0       vLLM's own scheduler and block pool"""


def demo(
    out: Annotated[Path, typer.Option(help="folder for the finding and its page")] = Path(".swarden/demo"),
) -> None:
    """Find a planted leak in a small paged engine: fuzz, shrink, replay, story and page, in seconds, without torch."""
    OUT.print(OPENING)
    options = ["--engine", ENGINE, "--stop-on-first", "--workers", 1, "--seed", SEED, "--out", out]
    code = _run("fuzz", *options, call=lambda: fuzz(engine=[ENGINE], stop_on_first=True, workers=1, seed=SEED, out=out))
    if code != ExitCode.VIOLATED:
        raise typer.Exit(code or ExitCode.RED)  # interrupted, or the leak was missed
    shrunk = [path for path in out.glob("*.oplog") if "." not in path.stem]  # not those of `swarden shrink`
    log = max(shrunk, key=lambda path: path.stat().st_mtime)
    _run("replay", log, call=lambda: replay([log]))
    _run("show", log, "--html", call=lambda: show(log, html=True))
    OUT.print(CLOSING.format(code=Path(__file__).parents[1] / "engines" / ENGINE))


def _run(*words: object, call: Callable[[], None]) -> int:
    """Print a command of swarden, and run it here; returns its exit code."""
    OUT.print(f"\n$ swarden {shlex.join(map(str, words))}", style="bold", soft_wrap=True)
    try:
        call()
    except typer.Exit as end:
        return end.exit_code
    return ExitCode.CLEAN
