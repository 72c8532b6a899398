"""SGLang as a target, in any release that is installed."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from harness.core.errors import INSTALL_ENGINE, InvalidConfig, UsageError
from harness.core.ops import Abort, Drain, Flush, Heal, Inject, Pause, Resume, Step, Submit
from harness.core.port import EnginePort
from harness.core.releases import in_environment
from harness.core.sources import hash_of
from harness.core.target import ENGINE, Draw, MachineSpec, Pool, Shape, Target
from harness.core.validation import validation_text
from harness.engines.sglang.adapter import CODE, FAULTS, SglangEngine
from harness.engines.sglang.boot import Release, boot
from harness.engines.sglang.config import SglangConfig, random_config
from harness.engines.sglang.mutants import CATALOG
from harness.engines.sglang.releases import SGLANG

OPS = (Submit, Abort, Step, Flush, Pause, Resume, Inject, Heal, Drain)


class SglangTarget(Target):
    """The scheduler of SGLang; without `release` that of this environment, or the newest that is installed."""

    name = "sglang"
    code = CODE
    machines: Mapping[str, MachineSpec] = {ENGINE: MachineSpec(OPS)}
    faults: Mapping[str, str] = FAULTS
    defaults: Mapping[str, Any] = msgspec.to_builtins(SglangConfig())
    releases = SGLANG
    catalog = CATALOG

    def __init__(self, release: str = "") -> None:
        self._release = release or next(iter(_versions()), "")

    def at(self, version: str) -> Target | None:
        if version == self._release:
            return self
        return type(self)(version) if version in _versions() else None

    def version(self) -> str:
        return self._release

    def source_hash(self) -> str:
        """The hash of the adapter, of swarden, and of the release: of its version, or of the sources of a checkout."""
        found = in_environment(SGLANG.package)
        is_checkout = found is not None and found.version == self._release and not found.is_release
        return _source_hash(self._release, found.folder if found is not None and is_checkout else None)

    def config(self, draw: Draw) -> SglangConfig:
        return random_config(draw, host_ratios=self._booted().host_ratios)

    def encode(self, config: Any) -> dict[str, Any]:
        encoded: dict[str, Any] = msgspec.to_builtins(config)
        return encoded

    def decode(self, mapping: Mapping[str, Any]) -> SglangConfig:
        try:
            return msgspec.convert(dict(mapping), SglangConfig)
        except msgspec.ValidationError as error:
            if isinstance(error.__cause__, InvalidConfig):
                raise error.__cause__ from error
            raise InvalidConfig(validation_text(dict(mapping), error)) from error

    def shape(self, config: Any) -> Shape:
        shape: Shape = config.shape
        return shape

    def config_of(self, shape: Shape) -> SglangConfig:
        match shape.pools:
            case [Pool(window=None, units=full_pages), Pool(units=swa_pages, window=int(window))]:
                return SglangConfig(
                    page_size=shape.page_size,
                    full_pages=full_pages,
                    swa_pages=swa_pages,
                    sliding_window=window - 1,
                    chunk_len=shape.chunk_len or SglangConfig().chunk_len,
                    max_running_requests=shape.max_running_requests,
                    max_context_len=shape.max_context_len,
                )
        raise InvalidConfig("want a full pool and a windowed pool; a scheduler of sglang has both")

    def build(self, config: Any) -> EnginePort:
        release, ratio = self._booted(), config.host_ratio
        if ratio is not None and not release.has("host_tier"):
            raise InvalidConfig(f"host_ratio is {ratio}, want null for sglang {release.text}: it has no such cache")
        if ratio is not None and ratio < 1 and not release.has("small_host_pools"):
            raise InvalidConfig(f"host_ratio is {ratio}, want at least 1 for sglang {release.text}")
        return SglangEngine(release, config)

    @property
    def process(self) -> str:
        return f"{self.name}=={self._release}"

    def check_environment(self) -> None:
        if not self._release:
            raise UsageError("no release of sglang is installed; run: swarden engines install sglang==VERSION")

    def prepare_process(self) -> None:
        self._booted()

    def _booted(self) -> Release:
        self.check_environment()
        folders = SGLANG.folders_of(self._release)
        try:
            return boot(self._release, folders)
        except ImportError as error:
            again = f"swarden engines remove sglang=={self._release}, and install it again"
            repair = f"run: {again}" if folders else "repair the sglang of this environment"
            remedy = INSTALL_ENGINE if error.name == "torch" else repair
            raise UsageError(f"sglang {self._release} cannot be imported: {error}; {remedy}") from error


def _versions() -> list[str]:
    """The versions that can be driven here: that of this environment first, then the installed ones, newest first."""
    found = in_environment(SGLANG.package)
    return [*([found.version] if found is not None else []), *reversed(SGLANG.installed())]


@cache
def _source_hash(version: str, checkout: Path | None) -> str:
    here = Path(__file__).parent
    swarden = (here, here.parents[1] / "core", here.parents[2] / "invariants")
    return hash_of(swarden if checkout is None else (*swarden, checkout), version)
