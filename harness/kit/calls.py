"""Intercepts calls of methods, and records the calls to a release for a program that makes them again."""

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

Call = dict[str, Any]
Wrap = Callable[[Any, str, Callable[..., Any]], None]  # lets a function surround the calls of a method of an object
STEP = "step"


class Calls:
    """Calls as plain data, each with its `name` and its `args`; a call within another recorded call is not recorded."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._depth = 0

    def record(self, owner: Any, method: str, noted: Callable[..., Call]) -> None:
        """Record the calls of a method of an object: `noted` makes the data from the arguments."""
        intercept(owner, method, partial(self._called, noted))

    @property
    def in_order(self) -> list[Call]:
        """All calls; successive steps are one with their number."""
        calls = list[Call]()
        for call, same in groupby(self._calls):
            count = len(list(same))
            calls += [call | {"args": [count]}] if call["name"] == STEP else [call] * count
        return calls

    def _called(self, noted: Callable[..., Call], original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._depth:
            self._calls.append(noted(*args, **kwargs))
        self._depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            self._depth -= 1


def intercept(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method of an object by `wrapper`, which gets the method and its arguments."""
    setattr(owner, name, partial(wrapper, getattr(owner, name)))
