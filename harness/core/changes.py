"""The changes to an engine's code that are planted for a run."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.fixes import fitting_fixes, fix_of, patch_of
from swarden.harness.core.mutant_file import mutant_of
from swarden.harness.core.patch import Patch
from swarden.harness.core.target import Target, prepare


class Changes(NamedTuple):
    """A mutant, and the fixes of known bugs, by their names; they are planted in this order."""

    mutant: str | None = None
    fixes: tuple[str, ...] = ()

    def patches(self, target: Target) -> list[Patch]:
        """The mutant and the fixes, without those that are `needless` or have come with the mutant.

        Raises UsageError for a name that the target does not have, and for a fix that does not fit its version and is
        not `needless`.
        """
        mutants = [mutant_of(target, self.mutant).patch] if self.mutant is not None else []
        needless = self.needless(target)
        of_mutant = [hunk for patch in mutants for hunk in patch.hunks]
        fixes = [fix_of(target, name) for name in self.fixes if name not in needless]
        return [*mutants, *[fix for fix in fixes if not all(hunk in of_mutant for hunk in fix.hunks)]]

    def needless(self, target: Target) -> list[str]:
        """The fixes that do not fit the target's version because that version does not have their bugs."""
        known, version = target.known_bugs(), target.version()
        bugs = [known[name] for name in self.fixes if name in known]
        return [bug.name for bug in bugs if not bug.has(version) and patch_of(target, bug) is None]

    @contextmanager
    def planted(self, target: Target) -> Iterator[None]:
        """Run the body with the changes in the code; raises UsageError if one is unknown or does not fit."""
        patches = self.patches(target)
        if patches:
            prepare(target)
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch.planted())
            yield


ALL = "all"


def fixes_of(target: Target, names: Sequence[str]) -> tuple[str, ...]:
    """The names of the fixes; ALL stands for those that fit this build together.  Raises UsageError if one does not."""
    every = [patch.name for patch in fitting_fixes(target)] if ALL in names else []
    if ALL in names and not every:
        raise UsageError(f"fix all: no fix of a known bug fits {target.name} {target.version()}; leave it out")
    found = [one for name in names for one in (every if name == ALL else [name])]
    for name in found:
        fix_of(target, name)
    return tuple(dict.fromkeys(found))
