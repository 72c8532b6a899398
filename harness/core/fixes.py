"""The fixes of known bugs that fit the build of an engine."""

from pathlib import Path

from swarden.harness.core.errors import UsageError
from swarden.harness.core.fitting import fitting
from swarden.harness.core.known_bug import KnownBug
from swarden.harness.core.patch import Patch
from swarden.harness.core.target import Target


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
    return next((one for one in patches if fitting([one], root)), None)


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
        are_for = " and ".join(" to ".join(dict.fromkeys(one.releases)) for one in bugs[name].fixes) or "no release"
        raise UsageError(f"fix {name}: fits {are_for} of {target.name}, not {version}; leave it out")
    return patch


def import_root(target: Target) -> Path | None:
    """The folder from which the package of the engine's code is imported; None if that is no folder of files."""
    folder, package = target.sources.folder if target.sources is not None else Path(), target.code.package
    root = folder.parents[package.count(".")] if len(folder.parents) > package.count(".") else None
    return root if root is not None and root.joinpath(*package.split(".")).is_dir() else None
