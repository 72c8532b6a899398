"""Faults: which there are, and when an armed one comes true.

A fault is one name in the docstring of the fake that knows it.  Whenever the engine comes through the
fake's port where the fault could come true, the fake asks the plan.
"""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

FAULT_LINE = re.compile(r"^(?P<name>[a-z]+\.[a-z]+)  +(?P<effect>\S.*)$", re.MULTILINE)


class UnknownFault(ValueError):
    """A name that no fake knows."""


@dataclass
class Armed:
    """The next `skip` crossings go well, the `count` after them do not."""

    skip: int
    count: int


class FaultPlan:
    """What is armed, and how often each fault came true; `tell` hears of each that does.

    A fault is armed at most once: arming it again replaces what was left of it.
    """

    def __init__(self, known: Iterable[str], tell: Callable[[str], None] | None = None) -> None:
        self.known = frozenset(known)
        self.fired: Counter[str] = Counter()
        self._tell = tell
        self._armed: dict[str, Armed] = {}

    def arm(self, name: str, *, skip: int = 0, count: int = 1) -> None:
        """Let the fault come true `count` times, after `skip` crossings that go well.  Raises UnknownFault."""
        self._check(name)
        self._armed.pop(name, None)
        if count > 0:
            self._armed[name] = Armed(skip=skip, count=count)

    def heal(self, name: str | None = None) -> bool:
        """Disarm a fault, or all of them; False where there was nothing to disarm.  Raises UnknownFault."""
        if name is not None:
            self._check(name)
        healed = list(self._armed) if name is None else [name] * (name in self._armed)
        for fault in healed:
            del self._armed[fault]
        return bool(healed)

    def fires(self, name: str) -> bool:
        """The engine crosses a port where the fault can come true: does it?  Raises UnknownFault."""
        self._check(name)
        armed = self._armed.get(name)
        if armed is None:
            return False
        if armed.skip > 0:
            armed.skip -= 1
            return False
        armed.count -= 1
        if not armed.count:
            del self._armed[name]
        self.fired[name] += 1
        if self._tell is not None:
            self._tell(name)
        return True

    def _check(self, name: str) -> None:
        if name not in self.known:
            raise UnknownFault(f"fault {name}: not one of {', '.join(sorted(self.known)) or 'none'}")


def faults_of(fake: type) -> dict[str, str]:
    """The faults that a fake's docstring lists, each with its effect."""
    return {line["name"]: line["effect"] for line in FAULT_LINE.finditer(inspect.getdoc(fake) or "")}
