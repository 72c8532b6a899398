"""The admission of op-logs: the header of a log is for an installed engine, which takes its settings.

A log of another version of the engine than the installed one would be another run.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.files import read_whole
from swarden.harness.core.limits import MAX_OPLOG_BYTES
from swarden.harness.core.oplog import UNKNOWN_REMEDY, Header, NumberedLine, OpLog, OpLogError, OpLogText
from swarden.harness.core.ops import Inject, Op
from swarden.harness.core.registry import UnknownEngine, target_for, target_of
from swarden.harness.core.target import Target, install_command
from swarden.harness.core.target_fault import blamed_on
from swarden.harness.core.validation import shortened


def load_log(path: Path, *, engine: str | None = None, model: str | None = None, inside: Path | None = None) -> OpLog:
    """Read a file that was named by the user, or found `inside` a folder.

    `engine` and `model` ("" for the stand-in) replace the fields of the header; digests are valid for that model
    only.

    Raises OpLogError for the first error in the file.
    """
    try:
        content = read_whole(path, most=MAX_OPLOG_BYTES, inside=inside)
    except OSError as error:
        raise OpLogError(path, None, f"cannot be read: {error.strerror}", "name an op-log") from error
    return parse_log(content, path, engine=engine, model=model)


def parse_log(content: bytes, path: Path, *, engine: str | None = None, model: str | None = None) -> OpLog:
    """Read the content of a file; `path` appears in errors only."""
    text = OpLogText(content, path)
    replaced = {} if model is None else {"model": model}
    if engine is not None:
        replaced["engine"], _, replaced["version"] = engine.partition("==")
    header = text.header(replaced)
    try:
        target = target_for(header) if engine is None else target_of(engine)
    except UnknownEngine as error:
        raise text.first.error(f"the header: {error.what}", error.remedy) from error
    _check_machine(text.first, header, target)
    for fault in header.faults:
        if fault not in target.faults:
            faults = ", ".join(target.faults) or "none"
            what = f"the header: unknown fault {fault}, {header.engine} knows {faults}"
            raise text.first.error(what, UNKNOWN_REMEDY)
    configs = _checked_configs(text.first, header, target)
    log = text.log(header, partial(_refusal, target, header, configs))
    return log if model is None else OpLog(header, log.ops)


def _check_machine(line: NumberedLine, header: Header, target: Target) -> None:
    """Check that the target has the machine, and that the machine can run the model."""
    spec = target.machines.get(header.machine)
    if spec is None:
        what = f"the header: machine is {shortened(header.machine)}, want {', '.join(target.machines)}"
        raise line.error(what, UNKNOWN_REMEDY)
    if header.model and header.model not in spec.models:
        models = ", ".join(spec.models) or "none"
        what = f"the header: model is {shortened(header.model)}, machine {header.machine} runs {models}"
        raise line.error(what, UNKNOWN_REMEDY)


def _refusal(target: Target, header: Header, configs: Sequence[Any], op: Op) -> str:
    """Why a log with this header cannot have this op; "" if it can."""
    if isinstance(op, Inject) and op.rank is not None:
        with blamed_on(target.name, "shape"):
            ranks = target.shape(configs[0]).ranks
        if op.rank >= ranks:
            return f"has no rank {op.rank} with these configurations, the last rank of an engine is {ranks - 1}"
    return target.machines[header.machine].refusal(op)


def _checked_configs(line: NumberedLine, header: Header, target: Target) -> Sequence[Any]:
    """The configurations, which are valid, and have the roles of the machine."""
    decoded = []
    for index, config in enumerate(header.configs):
        try:
            with blamed_on(target.name, "decode"):
                decoded.append(target.decode(config))
        except InvalidConfig as error:
            raise line.error(f"engine {index}: {error}", "correct the configuration") from error
    roles = [target.role(config) for config in decoded]
    want = [*target.machines[header.machine].roles] or [""] * len(roles)
    if roles != want:
        found, wanted = (", ".join(role or "both" for role in some) for some in (roles, want))
        what = f"the header: the engines' roles are {found}, machine {header.machine} wants {wanted}"
        raise line.error(what, "correct the configurations")
    if len(decoded) > 1:
        try:
            target.check_linked(decoded)
        except InvalidConfig as error:
            raise line.error(f"the engines: {error}", "correct the configurations") from error
    return decoded


def load_for_here(path: Path, *, inside: Path | None = None) -> OpLog:
    """Read an op-log, as load_log; raises UsageError if its version of the engine is not installed."""
    log = load_log(path, inside=inside)
    check_version(path, log.header)
    return log


def check_version(path: Path, header: Header, *, or_else: str = "") -> None:
    """Raise UsageError for a log of another engine version, which would be another run; the remedy may be `or_else`."""
    here = target_for(header).version()
    if header.version in ("", here):
        return
    command = install_command(target_for(header), header.version)
    remedy = ", or ".join(filter(None, (f"run: {command}" if command else "", or_else))) or "install that version"
    raise UsageError(f"{path}: was written for {header.engine} {header.version}, here is {here or 'none'}; {remedy}")
