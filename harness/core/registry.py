"""The installed targets."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from harness.core.errors import INSTALL_ENGINE, UsageError
from harness.core.target import Target

GROUP = "swarden.engines"
OWN = "swarden"  # the engine that comes with the harness


class UnknownEngine(UsageError):
    """The target is not installed, cannot be imported, or has another version."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"


def installed() -> dict[str, EntryPoint]:
    """The entry points of the registered targets by name, without importing them."""
    return {one.name: one for one in sorted(entry_points(group=GROUP), key=lambda one: one.name)}


@cache
def target_of(engine: str) -> Target:
    """The target of "NAME" or "NAME==VERSION"; raises UnknownEngine."""
    name, _, version = engine.partition("==")
    known = installed()
    if name not in known:
        names = ", ".join(known) or "none"
        raise UnknownEngine(f"engine {name!r} is not installed", f"install its package; installed are {names}")
    try:
        loaded = known[name].load()
        target: Target = loaded() if isinstance(loaded, type) else loaded
    except ModuleNotFoundError as error:
        remedy = INSTALL_ENGINE if name == OWN else f"install {error.name}"
        raise UnknownEngine(f"engine {name!r} cannot be imported: {error}", remedy) from error
    except Exception as error:
        what = f"engine {name!r} cannot be imported: {type(error).__name__}: {' '.join(str(error).split())}"
        raise UnknownEngine(what, f"repair or uninstall the package of {known[name].value}") from error
    found = target.at(version) if version else target
    if found is None:
        if command := target.install_command(version):
            raise UnknownEngine(f"{engine} is not installed", f"run: {command}")
        what = f"engine {name!r} is installed in version {target.version()}, not {version}"
        raise UnknownEngine(what, f"install that version, or name {name} without a version")
    return found


@cache
def target_at(engine: str, version: str) -> Target:
    """The target in this version if it is installed, otherwise in the version that is; raises UnknownEngine."""
    target = target_of(engine)
    return (target.at(version) if version else None) or target
