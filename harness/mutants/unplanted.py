"""What stands in the catalogue without being hunted: it waits for a part, has no room here, or cannot be seen."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from harness.core.mutant import Hunk, Mutant


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


@dataclass(frozen=True)
class ForTheOracle:
    """A bug of a model of which random traffic sees nothing, since what it is held against has it too.

    `told_by` is the test that plants it and holds the model against an implementation that nobody here wrote.
    """

    id: str
    source: str
    hunks: tuple[Hunk, ...]
    told_by: str

    def planted(self) -> AbstractContextManager[None]:
        """The context in which the bug is in the engine."""
        return Mutant(self.id, self.source, self.hunks, caught_by=()).planted()


Row = Mutant | Waiting | Excluded | ForTheOracle
