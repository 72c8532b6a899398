"""Faults at the ports of an engine: which are armed, and when one comes true."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass


class UnknownFault(ValueError):
    """A fault that this engine cannot have."""


@dataclass
class Armed:
    """The next `skip` crossings succeed, the `count` crossings after them fail."""

    skip: int
    count: int


class FaultPlan:
    """The armed faults, and how often each came true; `tell` is called with each that does.

    A fault is armed at most once: arming it again replaces the rest of it.
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
        """Whether the fault comes true at this crossing of a port.  Raises UnknownFault."""
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


CLIENT_GONE = "client.gone"
OF_CLIENTS = {CLIENT_GONE: "a client closes its connection instead of reading on: the server must abort its request"}
