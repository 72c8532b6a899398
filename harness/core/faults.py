"""The fault plan of an engine: which faults are armed, and at which crossings they fire."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass


class UnknownFault(ValueError):
    """The engine does not have this fault."""


@dataclass
class Armed:
    """The next `skip` crossings succeed, the `count` crossings after them fail."""

    skip: int
    count: int


class FaultPlan:
    """The armed faults, and how often each one fired; `on_fire` is called with the name of a fault that fires.

    Arming an armed fault replaces its remaining skips and firings.
    """

    def __init__(self, known: Iterable[str], on_fire: Callable[[str], None] | None = None) -> None:
        self.known = frozenset(known)
        self.fired: Counter[str] = Counter()
        self._on_fire = on_fire
        self._armed: dict[str, Armed] = {}

    def arm(self, name: str, *, skip: int = 0, count: int = 1) -> None:
        """Arm a fault: `skip` crossings succeed, the next `count` fail (0 disarms the fault).  Raises UnknownFault."""
        self._check(name)
        self._armed.pop(name, None)
        if count > 0:
            self._armed[name] = Armed(skip=skip, count=count)

    def heal(self, name: str | None = None) -> bool:
        """Disarm a fault, or all faults; False if none was armed.  Raises UnknownFault."""
        if name is not None:
            self._check(name)
        healed = list(self._armed) if name is None else [name] * (name in self._armed)
        for fault in healed:
            del self._armed[fault]
        return bool(healed)

    def fires(self, name: str) -> bool:
        """Cross a port, and return whether the fault fires there.  Raises UnknownFault."""
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
        if self._on_fire is not None:
            self._on_fire(name)
        return True

    def _check(self, name: str) -> None:
        if name not in self.known:
            raise UnknownFault(f"fault {name}: not one of {', '.join(sorted(self.known)) or 'none'}")


CLIENT_GONE = "client.gone"
CLIENT_FAULTS = {
    CLIENT_GONE: "a client closes its connection before the end of the output: the server must abort its request"
}
