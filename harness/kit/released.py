"""Targets that drive several releases of a package, each in a process of its own."""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Generic, Self

import msgspec

from swarden.harness.core.errors import InvalidConfig, UsageError
from swarden.harness.core.imports import importing
from swarden.harness.core.releases import Releases, in_environment
from swarden.harness.core.sources import hash_of
from swarden.harness.core.target import Target
from swarden.harness.core.validation import validation_text
from swarden.harness.kit.parts import PartsT


class ReleasedTarget(Target, Generic[PartsT]):
    """One release of an engine; without `release` that of this environment, or the newest that is installed.

    `config_type` is the type of its configurations, a msgspec.Struct.
    """

    releases: Releases
    config_type: type[msgspec.Struct]

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
        found = in_environment(self.releases.package)
        is_checkout = found is not None and found.version == self._release and not found.is_release
        adapter = Path(str(sys.modules[type(self).__module__].__file__)).parent
        return _hash_of(adapter, self._release, found.folder if found is not None and is_checkout else None)

    @property
    def process(self) -> str:
        return f"{self.name}=={self._release}"

    def check_environment(self) -> None:
        if not self._release:
            install = f"swarden engines install {self.name}==VERSION"
            raise UsageError(f"no release of {self.name} is installed; run: {install}")

    def encode(self, config: Any) -> dict[str, Any]:
        encoded: dict[str, Any] = msgspec.to_builtins(config)
        return encoded

    def decode(self, mapping: Mapping[str, Any]) -> Any:
        try:
            return msgspec.convert(dict(mapping), self.config_type)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, InvalidConfig):
                raise error.__cause__ from error
            raise InvalidConfig(validation_text(dict(mapping), error)) from error

    def prepare_process(self) -> None:
        self.booted()

    def load(self, version: str, folders: tuple[Path, ...]) -> PartsT:
        """Import a release into this process, from `folders` or from the environment; raises ImportError."""
        raise NotImplementedError

    def booted(self) -> PartsT:
        """The release, imported; raises UsageError if it cannot be imported, or another one has been."""
        self.check_environment()
        folders = self.releases.folders_of(self._release)
        again = f"swarden engines remove {self.name}=={self._release}, and install it again"
        repair = f"run: {again}" if folders else f"repair the {self.name} of this environment"
        what, kinds = f"{self.name} {self._release}", (ImportError, SystemExit)
        with importing(what, repair, catches=kinds, can_install=not folders):
            return self.load(self._release, folders)

    def _versions(self) -> list[str]:
        """The versions that can be driven here: that of this environment, then the installed ones, newest first."""
        found = in_environment(self.releases.package)
        return [*([found.version] if found is not None else []), *reversed(self.releases.installed())]


@cache
def _hash_of(adapter: Path, version: str, checkout: Path | None) -> str:
    kit = Path(__file__).parent
    harness = kit.parent
    swarden = (adapter, kit, harness / "core", harness.parent / "invariants")
    return hash_of(swarden if checkout is None else (*swarden, checkout), version)
