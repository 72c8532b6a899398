"""A finding as a program that needs only the engine's package."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.errors import UsageError

SCRIPT, PYTEST, HTTP, ISSUE = "script", "pytest", "http", "issue"  # the forms of a finding for maintainers


LONG_RUN = 4  # of successive numbers, which are printed as a range


class NoProgram(UsageError):
    """An op-log that no program of the engine's package alone can show; the text says why."""


class Program(NamedTuple):
    """A typed module beside the target, the values of its constants, and the `calls` of its case, all plain data."""

    source: Path
    constants: Mapping[str, Any]
    calls: Sequence[Mapping[str, Any]] = ()  # each with its `name`, its `args`, and more by name
    made: str = ""  # the lines of the function of this name, with their imports: they make objects of the release


def arguments(args: Sequence[Any], more: Mapping[str, Any], text: Callable[[Any], str] | None = None) -> str:
    """The arguments of a call, as `literal` writes them."""
    named = [f"{name}={literal(value, text)}" for name, value in more.items()]
    return ", ".join([*[literal(argument, text) for argument in args], *named])


def literal(value: Any, text: Callable[[Any], str] | None = None) -> str:
    """The Python literal of plain data; `text` writes other values, for which it raises TypeError without it."""
    kind = type(value)
    if kind is dict:
        return f"{{{', '.join([f'{literal(key)}: {literal(item, text)}' for key, item in value.items()])}}}"
    if kind is list and all(type(item) is int for item in value):
        return f"[{', '.join(_runs(value))}]"
    if kind in (list, tuple):
        members = ", ".join([literal(item, text) for item in value])
        return f"[{members}]" if kind is list else f"({members}{',' * (len(value) == 1)})"
    if (value is not None and kind not in (str, int, float, bool)) or value != value:
        if text is not None:
            return text(value)
        raise TypeError(f"{kind.__name__}: no plain data, so it has no literal")
    return repr(value)


def _runs(numbers: list[int]) -> list[str]:
    """Numbers as elements of a list literal, runs of them as ranges: "*range(1000, 1016)", "*[*range(9)] * 2", "7"."""
    texts = list[str]()
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        is_long = len(members) >= LONG_RUN
        texts += [f"*range({members[0]}, {members[-1] + 1})"] if is_long else map(str, members)
    same = [list(equal) for _, equal in groupby(texts)]
    return [item for run in same for item in (run if len(run) < LONG_RUN else [f"*[{run[0]}] * {len(run)}"])]
