"""Bugs that are not planted: our design excludes them, or only a test detects them."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from swarden.harness.core.mutant import Hunk, Mutant


@dataclass(frozen=True)
class Excluded:
    """A bug that our design makes impossible, for the reason `because`; another engine can have it.

    `case` names the hand-made case of `invariant` that detects the bug.
    """

    id: str
    source: str
    because: str
    invariant: str
    case: str


@dataclass(frozen=True)
class DetectedByTest:
    """A bug that random traffic cannot detect, for example one that the reference model has too.

    `detected_by` is the test that plants and detects the bug, such as a comparison with another implementation.
    """

    id: str
    source: str
    hunks: tuple[Hunk, ...]
    detected_by: str

    def planted(self) -> AbstractContextManager[None]:
        """A context in which the bug is in the engine."""
        return Mutant(self.id, self.source, self.hunks, caught_by=()).planted()


Bug = Mutant | Excluded | DetectedByTest
