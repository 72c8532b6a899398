"""The changes to an engine's code that are planted for a run: a mutant, and fixes of known bugs that fit the build."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from swarden.harness.core.errors import UsageError
from swarden.harness.core.known_bug import KnownBug
from swarden.harness.core.mutant_file import mutant_of
from swarden.harness.core.patch import Patch, fitting
from swarden.harness.core.target import Target, prepare


def patch_of(target: Target, bug: KnownBug) -> Patch | None:
    """The fix of a known bug that fits the code of this build, that for its release first; None if none fits.

    Sources that can change may have any bug, whatever their version is.
    """
    version, root, sources = target.version(), import_root(target), target.sources
    own = bug.patch_for(version)
    if sources is None or root is None:
        return own
    patches = [own] if own is not None else []
    if bug.has(version) or not sources.is_release:
        patches += bug.patches
    return next((patch for patch in patches if fitting([patch], root)), None)


def fitting_fixes(target: Target) -> list[Patch]:
    """The fixes of known bugs that fit this build together, but for bugs that its version does not have."""
    version, root = target.version(), import_root(target)
    bugs = [bug for bug in target.known_bugs().values() if bug.has(version) or bug.patch_for(version)]
    patches = [patch for bug in bugs if (patch := patch_of(target, bug)) is not None]
    return fitting(patches, root) if root is not None else patches


def fix_of(target: Target, name: str) -> Patch:
    """The fix of the known bug with that name; raises UsageError if none fits this build of the engine."""
    bugs, version = target.known_bugs(), target.version()
    if name not in bugs:
        raise UsageError(f"fix {name}: {target.name} has no known bug of this name; it has {', '.join(bugs) or 'none'}")
    patch = patch_of(target, bugs[name]) or bugs[name].patch_for(version)
    if patch is None:
        are_for = " and ".join(" to ".join(dict.fromkeys(fix.releases)) for fix in bugs[name].fixes) or "no release"
        raise UsageError(f"fix {name}: fits {are_for} of {target.name}, not {version}; leave it out")
    return patch


def import_root(target: Target) -> Path | None:
    """The folder from which the package of the engine's code is imported; None if that is no folder of files."""
    folder, package = target.sources.folder if target.sources is not None else Path(), target.code.package
    root = folder.parents[package.count(".")] if len(folder.parents) > package.count(".") else None
    return root if root is not None and root.joinpath(*package.split(".")).is_dir() else None


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
        every, version = target.known_bugs(), target.version()
        bugs = [every[name] for name in self.fixes if name in every]
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
    chosen = [fix for name in names for fix in (every if name == ALL else [name])]
    for name in chosen:
        fix_of(target, name)
    return tuple(dict.fromkeys(chosen))
