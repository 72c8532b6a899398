"""Servers for the tests of `swarden attach`: forks of one process that has imported the release, one after the other.

A script calls `serve_each`; a test runs the script below `swarden attach` with `run_attached`.
"""

import argparse
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import md5
from inspect import isroutine
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.admission import load_log
from swarden.harness.core.changes import fixes_of
from swarden.harness.core.ops import Step
from swarden.harness.core.registry import target_for
from swarden.harness.core.replay import run_log
from swarden.harness.strict.follow import Attachment

ROOT = Path(__file__).parents[2]
ENGINES = ("sglang", "vllm")
THEN = "then"  # between the options of two servers
END_OF_SERVER = "-- the server ended with exit code"
TIMEOUT_S = 900
PLANTED = "planted in the check"
FLAGS = {
    "bug": "plant a use after free",
    "broken-check": "let the check raise an error of its own at its fifth event",
    "times": "print the CPU seconds at the start of each turn, as JSON",
}


class Ended(NamedTuple):
    """A server that has ended: its exit code, and what it wrote."""

    code: int
    stdout: str
    stderr: str


class Replayed(NamedTuple):
    """A replay of an op-log: whether it failed in the last engine step of the log, and its fingerprints."""

    is_in_last_step: bool
    fingerprints: set[str]
    truncated: str

    @property
    def laws(self) -> set[str]:
        return {name.split("/")[0] for name in self.fingerprints}


# --- in the script


def hex_of(number: int) -> str:
    """As `uuid4().hex` in a server, but the same in each run."""
    return md5(str(number).encode()).hexdigest()


def serve_each(
    serve: Callable[[argparse.Namespace, list[float]], object], flags: Mapping[str, str], numbers: Mapping[str, int]
) -> None:
    """Serve once with each of the options of the command line, which are these flags, and numbers with defaults.

    `serve` adds the CPU seconds at the start of each turn to a list.
    """
    parser = argparse.ArgumentParser()
    for name, text in {**FLAGS, **flags}.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for arguments in " ".join(sys.argv[1:]).split(THEN):
        options = parser.parse_args(arguments.split())
        server = get_context("fork").Process(target=_serve, args=(serve, options))
        server.start()
        server.join()
        for stream in (sys.stdout, sys.stderr):
            print(f"\n{END_OF_SERVER} {server.exitcode}", file=stream, flush=True)


def _serve(serve: Callable[[argparse.Namespace, list[float]], object], options: argparse.Namespace) -> None:
    logging.disable(logging.NOTSET)
    turns: list[float] = []
    before = functions_of_classes()
    if options.broken_check:
        plant_in_the_check()
    serve(options, turns)
    after = functions_of_classes()
    changed = [f", but {kind} has changed" for kind in before if after.get(kind) != before[kind]]
    sys.stdout.write(json.dumps(turns) if options.times else f"served {options.requests} requests{''.join(changed)}")


def functions_of_classes() -> dict[type, dict[str, object]]:
    """The functions of all classes of the engine that are imported by now."""
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] in ENGINES]
    kinds = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    return {kind: {name: one for name, one in vars(kind).items() if isroutine(one)} for kind in kinds}


def plant_in_the_check() -> None:
    """Let the check raise an error where it notes its fifth event, within a call of the engine."""
    notice, noted = Attachment._notice, iter(range(4))

    def broken(attachment: Attachment, event: Any) -> None:
        if next(noted, None) is None:
            raise ZeroDivisionError(PLANTED)
        notice(attachment, event)

    setattr(Attachment, "_notice", broken)  # noqa: B010  # in a process of its own


# --- in the tests


def run_attached(
    script: Path,
    options: Sequence[str],
    servers: Mapping[str, Sequence[str]],
    *,
    folders: Iterable[Path],
    environment: Mapping[str, str],
) -> dict[str, Ended]:
    """Run servers below `swarden attach` with these options; the ends of the servers by name.

    `folders` are those of the release.
    """
    path = os.pathsep.join(map(str, (*folders, ROOT)))
    of_servers = f" {THEN} ".join(" ".join(one) for one in servers.values()).split()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "swarden.harness.cli",
            "attach",
            *options,
            "--require",
            "--",
            sys.executable,
            str(script),
            *of_servers,
        ],
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == (2 if "--broken-check" in of_servers else 0), done.stderr
    end = re.compile(f"\n{END_OF_SERVER} (-?\\d+)\n")
    stdouts, stderrs, codes = end.split(done.stdout)[::2], end.split(done.stderr)[::2], end.findall(done.stdout)
    return {name: Ended(int(codes[at]), stdouts[at], stderrs[at]) for at, name in enumerate(servers)}


def log_named_in(done: Ended) -> Path:
    """The only op-log that the server has written."""
    [path] = map(Path, re.findall(r"replay: swarden replay (\S+)", done.stderr))
    return path


def replayed(path: Path, planted: Callable[[], Any], fixes: Sequence[str] = ()) -> Replayed:
    """Run an op-log behind the port, with a bug planted and with fixes of known bugs."""
    log = load_log(path)
    log = log.with_fixes(fixes_of(target_for(log.header), fixes))
    with planted():
        driver = run_log(log)
    num_steps = sum(op.count for op in log.ops if isinstance(op, Step))
    fingerprints = set(driver.failure.fingerprints if driver.failure is not None else ())
    return Replayed(driver.snapshot().step == num_steps, fingerprints, log.header.truncated)
