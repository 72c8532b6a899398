"""An op-log as Python code that a person can read and edit."""

from enum import Enum
from textwrap import indent

import msgspec

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.registry import target_for

INDENT = "    "
# The fields of a header that change a run.
RUN_FIELDS = ("engine", "version", "machine", "configs", "mutant", "fixes", "model")


def log_code(log: OpLog) -> str:
    """A Python expression for an op-log, one op per line, without settings and arguments that have their defaults."""
    defaults, absent = target_for(log.header).defaults, object()
    configs = [
        {name: value for name, value in config.items() if value != defaults.get(name, absent)}
        for config in log.header.configs
    ]
    header = msgspec.structs.replace(log.header, configs=configs)
    fields = [f"{name}={getattr(header, name)!r},\n" for name in RUN_FIELDS if getattr(header, name)]
    ops = [f"{value_code(op)},\n" for op in log.ops]
    arguments = f"Header(\n{indent(''.join(fields), INDENT)}),\n[\n{indent(''.join(ops), INDENT)}],\n"
    return f"OpLog(\n{indent(arguments, INDENT)})"


def value_code(value: object) -> str:
    """A value as Python code, with types of `swarden.kit.ops`; without the fields that have their defaults."""
    if isinstance(value, Enum):
        return f"ops.{type(value).__name__}.{value.name}"
    if not isinstance(value, msgspec.Struct):
        return repr(value)
    bare = type(value)()
    fields = [(name, getattr(value, name)) for name in value.__struct_fields__]
    changed = [f"{name}={value_code(own)}" for name, own in fields if own != getattr(bare, name)]
    return f"ops.{type(value).__name__}({', '.join(changed)})"
