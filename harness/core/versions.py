"""Compares the engine version that an op-log was written for with the version that is installed."""

from pathlib import Path

from swarden.harness.core.admission import load_log
from swarden.harness.core.errors import UsageError
from swarden.harness.core.oplog import Header, OpLog
from swarden.harness.core.registry import target_for
from swarden.harness.core.target import install_command


def load_for_here(path: Path, *, inside: Path | None = None) -> OpLog:
    """Read an op-log, as load_log; raises UsageError if its version of the engine is not installed."""
    log = load_log(path, inside=inside)
    check_version(path, log.header)
    return log


def check_version(path: Path, header: Header, *, or_else: str = "") -> None:
    """Raise UsageError for a log of another engine version, because on this version it would be another run.

    `or_else` is another remedy than to install that version.
    """
    here = target_for(header).version()
    if header.version in ("", here):
        return
    command = install_command(target_for(header), header.version)
    remedy = ", or ".join(filter(None, (f"run: {command}" if command else "", or_else))) or "install that version"
    raise UsageError(f"{path}: was written for {header.engine} {header.version}, here is {here or 'none'}; {remedy}")
