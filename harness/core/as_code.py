"""An op-log as Python code that a person can read and edit."""

from enum import Enum
from textwrap import indent

import msgspec

from swarden.harness.core.oplog import OpLog
from swarden.harness.core.ops import Recipe

INDENT = "    "
# The fields of a header that change a run.
RUN_FIELDS = ("engine", "version", "machine", "configs", "mutant", "fixes", "model")


def log_code(log: OpLog) -> str:
    """A Python expression for an op-log, one op per line, without settings and arguments that have their defaults."""
    defaults, absent = log.header.target.defaults, object()
    configs = [
        {name: value for name, value in config.items() if value != defaults.get(name, absent)}
        for config in log.header.configs
    ]
    header = msgspec.structs.replace(log.header, configs=configs)
    fields = [f"{name}={getattr(header, name)!r},\n" for name in RUN_FIELDS if getattr(header, name)]
    ops = [f"{value_code(op)},\n" for op in log.ops]
    arguments = f"Header(\n{indent(''.join(fields), INDENT)}),\n[\n{indent(''.join(ops), INDENT)}],\n"
    return f"OpLog(\n{indent(arguments, INDENT)})"


def names_in(log: OpLog) -> list[str]:
    """The names of `swarden.kit` that the code of a log uses: of its ops and of the types of their arguments, too."""
    arguments = [
        value
        for op in log.ops
        for name, value in zip(op.__struct_fields__, msgspec.structs.astuple(op), strict=True)
        if isinstance(value, Recipe | Enum) and value != getattr(type(op)(), name)
    ]
    return sorted({"Header", "OpLog", *(type(value).__name__ for value in (*log.ops, *arguments))})


def value_code(value: object) -> str:
    """A value as Python code; an op or a recipe without the fields that have their defaults."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if not isinstance(value, msgspec.Struct):
        return repr(value)
    bare = type(value)()
    fields = [(name, getattr(value, name)) for name in value.__struct_fields__]
    changed = [f"{name}={value_code(own)}" for name, own in fields if own != getattr(bare, name)]
    return f"{type(value).__name__}({', '.join(changed)})"
