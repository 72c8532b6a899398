"""Targets that drive several releases of a package, each in a process of its own."""

import sys
from functools import cache
from pathlib import Path
from typing import Self

from harness.core.errors import UsageError
from harness.core.releases import Releases, in_environment
from harness.core.sources import hash_of
from harness.core.target import Target


class ReleasedTarget(Target):
    """One release of an engine; without `release` that of this environment, or the newest that is installed."""

    releases: Releases

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

    def _versions(self) -> list[str]:
        """The versions that can be driven here: that of this environment, then the installed ones, newest first."""
        found = in_environment(self.releases.package)
        return [*([found.version] if found is not None else []), *reversed(self.releases.installed())]


@cache
def _hash_of(adapter: Path, version: str, checkout: Path | None) -> str:
    core = Path(__file__).parent
    swarden = (adapter, core, core.parents[1] / "invariants")
    return hash_of(swarden if checkout is None else (*swarden, checkout), version)
