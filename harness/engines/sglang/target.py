"""SGLang as a target, in any release that is installed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.core.errors import InvalidConfig, UsageError
from harness.core.ops import Abort, Drain, Flush, Heal, Inject, Pause, Resume, Step, Submit
from harness.core.port import EnginePort
from harness.core.sources import hash_of
from harness.core.target import ENGINE, Draw, MachineSpec, Shape, Target
from harness.core.validation import validation_text
from harness.engines.sglang import releases
from harness.engines.sglang.adapter import CODE, FAULTS, SglangEngine
from harness.engines.sglang.boot import Release, boot
from harness.engines.sglang.config import SglangConfig, random_config

OPS = (Submit, Abort, Step, Flush, Pause, Resume, Inject, Heal, Drain)


class SglangTarget(Target):
    """The scheduler of SGLang; without `release` that of this environment, or the newest that is installed."""

    name = "sglang"
    code = CODE
    machines: Mapping[str, MachineSpec] = {ENGINE: MachineSpec(OPS)}
    faults: Mapping[str, str] = FAULTS
    defaults: Mapping[str, Any] = msgspec.to_builtins(SglangConfig())

    def __init__(self, release: str = "") -> None:
        self._release = release or releases.version_in_environment() or next(reversed(releases.installed()), "")

    def at(self, version: str) -> Target | None:
        if version == self._release:
            return self
        known = (releases.version_in_environment(), *releases.installed())
        return type(self)(version) if version in known else None

    def version(self) -> str:
        return self._release

    def source_hash(self) -> str:
        """The hash of the adapter and of swarden; the version stands for the release."""
        here = Path(__file__).parent
        return hash_of([here, here.parents[1] / "core", here.parents[2] / "invariants"])

    def config(self, draw: Draw) -> SglangConfig:
        return random_config(draw, host_ratios=self._boot().host_ratios)

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

    def build(self, config: Any) -> EnginePort:
        release, ratio = self._boot(), config.host_ratio
        if ratio is not None and not release.has("host_tier"):
            raise InvalidConfig(f"host_ratio is {ratio}, want null for sglang {release.text}: it has no such cache")
        if ratio is not None and ratio < 1 and not release.has("small_host_pools"):
            raise InvalidConfig(f"host_ratio is {ratio}, want at least 1 for sglang {release.text}")
        return SglangEngine(release, config)

    def prepare_process(self) -> None:
        if not self._release:
            raise UsageError("no release of sglang is installed; run: swarden engines install sglang==VERSION")
        self._boot()

    def _boot(self) -> Release:
        return boot(self._release, releases.folders_of(self._release))
