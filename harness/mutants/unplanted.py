"""What stands in the catalogue without being planted: it waits for a part, or the design leaves no room for it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A bug of a capability that the engine does not have; it is planted when that comes."""

    id: str
    source: str
    capability: str


@dataclass(frozen=True)
class Excluded:
    """A bug that our design leaves no room for, as `because` says; a foreign engine can have it.

    `case` names the doctored case of `invariant` that shows it caught.
    """

    id: str
    source: str
    because: str
    invariant: str
    case: str
