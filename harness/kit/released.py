"""Targets that drive several releases of a package, each in a process of its own."""

import sys
from functools import cache
from pathlib import Path
from typing import Generic, Self

from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.imports import importing
from swarden.harness.core.releases import InEnvironment, Releases, in_environment
from swarden.harness.core.sources import hash_of
from swarden.harness.core.validation import shortened
from swarden.harness.kit.released_code import BootedRelease, CodeT
from swarden.harness.kit.settings import ConfiguredTarget, IfReleaseHas, Settings, declared, flat


class ReleasedTarget(ConfiguredTarget, Generic[CodeT]):
    """One release of an engine; without `release`, the release of this environment, or the newest that is installed.

    `load` imports a release into this process, from folders or from the environment; it raises ImportError.
    """

    releases: Releases
    load: BootedRelease[CodeT]

    def __init__(self, release: str = "") -> None:
        self._release = release or next(iter(self._versions()), "")

    def at(self, version: str) -> Self | None:
        if version == self._release:
            return self
        return type(self)(version) if version in self._versions() else None

    def version(self) -> str:
        return self._release

    def source_hash(self) -> str:
        """The hash of the adapter, of swarden, and of the release: of its version, or of the sources of a checkout."""
        return _hash_of(self.adapter_folders, self._release, self.releases.checkout_of(self._release))

    @property
    def adapter_folders(self) -> tuple[Path, ...]:
        """The folders of the adapter's sources."""
        kinds = [kind for kind in type(self).__mro__ if issubclass(kind, ReleasedTarget)]
        return tuple(sorted({Path(str(sys.modules[kind.__module__].__file__)).parent for kind in kinds}))

    @property
    def sources(self) -> InEnvironment | None:
        package = in_environment(self.releases.package)
        if package is not None and package.version == self._release:
            return package
        folders = self.releases.folders_of(self._release)
        is_release = self.releases.checkout_of(self._release) is None
        return InEnvironment(self._release, folders[0] / self.releases.package, is_release) if folders else None

    @property
    def process(self) -> str:
        return f"{self.name}=={self._release}"

    def check_environment(self) -> None:
        if not self._release:
            install = f"swarden engines install {self.name}==VERSION"
            raise UsageError(f"no release of {self.name} is installed; run: {install}")
        self.releases.check_age(self._release)

    def prepare_process(self) -> None:
        self.booted()

    def booted(self) -> CodeT:
        """The release, imported; raises UsageError if it cannot be imported, or another one has been."""
        self.check_environment()
        folders = self.releases.folders_of(self._release)
        again = f"swarden engines remove {self.name}=={self._release}, and install it again"
        repair = f"run: {again}" if folders else f"repair the {self.name} of this environment"
        what, kinds = f"{self.name} {self._release}", (ImportError, SystemExit)
        with importing(what, repair, catches=kinds, can_install=not folders):
            return self.load(self._release, folders)

    def booted_for(self, config: Settings) -> CodeT:
        """The release, imported; raises InvalidConfig for a setting that it does not have."""
        release = self.booted()
        for name, (feature,) in declared(self.config_type, IfReleaseHas).items():
            value, default = flat(config)[name], self.defaults[name]
            if value != default and not release.has(feature):
                what = f"{name} is {shortened(value)}, want {shortened(default)}"
                raise InvalidConfig(f"{what} for {self.name} {release.text}: it has no such setting")
        return release

    def _versions(self) -> list[str]:
        """The versions that can be driven here: of the environment, the installed ones, newest first, checkouts."""
        package, releases = in_environment(self.releases.package), self.releases
        of_environment = [package.version] if package is not None else []
        return [*of_environment, *reversed(releases.installed()), *releases.linked()]


@cache
def _hash_of(adapters: tuple[Path, ...], version: str, checkout: Path | None) -> str:
    harness = Path(__file__).parents[1]
    swarden = (*adapters, harness / "core", harness.parent / "invariants")
    return hash_of(swarden if checkout is None else (*swarden, checkout), version)
