"""Programs from templates: a value enters only as a literal, so no value of an op-log can become code."""

from itertools import groupby
from pprint import pformat
from textwrap import indent
from typing import Any

from jinja2 import Environment, StrictUndefined

from swarden.harness.core.program import Program

WIDTH = 110
LONG_RUN = 4  # of successive numbers, which are printed as a range


def program_text(program: Program) -> str:
    """The text of a program; raises TypeError for a value that is no plain data."""
    text: str = ENVIRONMENT.from_string(program.template.read_text()).render(program.values)
    return text.strip() + "\n"


def literal(value: Any) -> str:
    """The Python literal of plain data, on as many lines as it needs."""
    _check(value)
    if type(value) is list and all(type(one) is int for one in value):
        return f"[{', '.join(_runs(value))}]"
    if isinstance(value, str):
        text = repr(value)
        return text if set(text[1:-1]) & set("\"'\\") else f'"{text[1:-1]}"'
    return indent(pformat(value, width=WIDTH, compact=True, sort_dicts=False), "    ").lstrip()


def _runs(numbers: list[int]) -> list[str]:
    """Numbers as elements of a list literal, runs of them as ranges: "*range(1000, 1016)", "7"."""
    texts = list[str]()
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        is_long = len(members) >= LONG_RUN
        texts += [f"*range({members[0]}, {members[-1] + 1})"] if is_long else map(str, members)
    return texts


def _check(value: Any) -> None:
    if type(value) in (list, tuple, dict):
        for part in value:
            _check(part)
        for part in value.values() if type(value) is dict else ():
            _check(part)
    elif (value is not None and type(value) not in (str, int, float, bool)) or value != value:
        raise TypeError(f"{type(value).__name__}: no plain data, so it has no literal")


ENVIRONMENT = Environment(
    autoescape=False,  # of HTML
    finalize=literal,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
