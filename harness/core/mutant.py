"""A mutant: a bug as data, which is planted into the code at run time."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from swarden.harness.core.patch import Hunk as Hunk  # a file of mutants imports both from here
from swarden.harness.core.patch import Patch


@dataclass(frozen=True)
class Mutant:
    """One bug, as hunks that replace the healthy text by the broken one.

    A bug of a checker `overlooks` another mutant, and both are planted together.  It is caught if the op-log of the
    other mutant violates a law of `caught_by` without the checker bug, and violates none of them with it.
    """

    id: str
    source: str  # where it occurred
    hunks: tuple[Hunk, ...]
    caught_by: tuple[str, ...]  # the invariants or engine errors that may detect it
    machine: str = "engine"  # whose traffic reaches the bug
    model: str = ""  # that its engines run, if any
    overlooks: "Mutant | None" = None
    fixes: tuple[Hunk, ...] = ()  # planted first, so that the mutant is the only bug
    is_canary: bool = False  # random traffic finds it within seconds: each night searches for one

    @property
    def patch(self) -> Patch:
        """The fixes, the mutant's own hunks, and the hunks of the mutant that it overlooks."""
        return Patch(self.id, self.fixes + self.hunks + (self.overlooks.hunks if self.overlooks is not None else ()))

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Run the body without the bug, within `planted`; the fixes stay."""
        with self.patch.removed(), Patch(self.id, self.fixes).planted():
            yield

    def planted(self) -> AbstractContextManager[None]:
        """A context in which the bug is in the code; raises StalePatch before any change."""
        return self.patch.planted()


@dataclass(frozen=True, slots=True)
class Mutants:
    """The mutants of a module in the order of its calls of `bug`, and the defaults of their fields."""

    machine: str = "engine"
    model: str = ""
    fixes: tuple[Hunk, ...] = ()
    caught_by: tuple[str, ...] = ()
    all: list[Mutant] = field(default_factory=list)

    def bug(
        self,
        id: str,
        source: str,
        *hunks: Hunk,
        at: str = "",
        healthy: str = "",
        broken: str = "",
        caught_by: tuple[str, ...] = (),
        machine: str = "",
        model: str = "",
        overlooks: Mutant | None = None,
        is_canary: bool = False,
    ) -> Mutant:
        """Add a mutant with these hunks; `at`, `healthy` and `broken` are its only hunk, or its last."""
        if at or not hunks:
            hunks += (Hunk(at, healthy, broken),)
        machine, model, caught_by = machine or self.machine, model or self.model, caught_by or self.caught_by
        if not caught_by:
            raise TypeError(f"mutant {id}: caught_by is missing; name the laws that detect it")
        mutant = Mutant(id, source, hunks, caught_by, machine, model, overlooks, self.fixes, is_canary)
        self.all.append(mutant)
        return mutant
