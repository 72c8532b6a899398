"""The installed targets."""

from contextlib import AbstractContextManager
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from swarden.harness.core.errors import CannotImport
from swarden.harness.core.imports import importing
from swarden.harness.core.known_bug import KnownBug
from swarden.harness.core.oplog import Header
from swarden.harness.core.target import Target, install_command

GROUP = "swarden.engines"
OWN = "swarden"  # the engine that comes with the harness


class UnknownEngine(CannotImport):
    """The target is not installed, cannot be imported, or is installed in another version."""


def installed() -> dict[str, EntryPoint]:
    """The entry points of the registered targets by name, without importing them."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}


def code_of(engine: EntryPoint) -> AbstractContextManager[None]:
    """A context for code of an engine's package; raises UnknownEngine, with the package, for any exception of it."""
    package = engine.dist.name if engine.dist is not None else engine.value
    what = f"engine {engine.name!r} of the package {package} ({engine.value})"
    return importing(what, f"repair or uninstall {package}", catches=BaseException, raises=UnknownEngine)


@cache
def target_of(engine: str) -> Target:
    """The target of "NAME" or "NAME==VERSION"; raises UnknownEngine."""
    name, _, version = engine.partition("==")
    entries = installed()
    if name not in entries:
        here = f"installed are {', '.join(entries) or 'none'}; a release is NAME==VERSION"
        raise UnknownEngine(f"engine {name!r} is not installed", f"install its package; {here}")
    with code_of(entries[name]):
        loaded = entries[name].load()
        target: Target = loaded() if isinstance(loaded, type) else loaded
        release = target.at(version) if version else target
    if release is None:
        if command := install_command(target, version):
            raise UnknownEngine(f"{engine} is not installed", f"run: {command}")
        what = f"engine {name!r} is installed in version {target.version()}, not {version}"
        raise UnknownEngine(what, f"install that version, or name {name} without a version")
    return release


def target_for(header: Header) -> Target:
    """The target of a log, in the log's version if that is installed, else in another.  Raises UnknownEngine."""
    return _target_at(header.engine, header.version)


@cache
def _target_at(engine: str, version: str) -> Target:
    target = target_of(engine)
    return (target.at(version) if version else None) or target


def bugs_by_engine() -> dict[str, list[KnownBug]]:
    """The known bugs of each installed engine.  A bug of several builds of an engine is that of the shortest name.

    Our own engine has none, and is not imported: it needs torch.
    """
    by_engine: dict[str, list[KnownBug]] = {}
    seen: set[tuple[str, str]] = set()
    for engine in sorted(installed().keys() - {OWN}, key=lambda name: (len(name), name)):
        try:
            bugs = target_of(engine).known_bugs().values()
        except UnknownEngine:  # 'swarden engines' says why it cannot be loaded
            continue
        by_engine[engine] = [bug for bug in bugs if (bug.folder, bug.name) not in seen]
        seen |= {(bug.folder, bug.name) for bug in bugs}
    return dict(sorted(by_engine.items()))
