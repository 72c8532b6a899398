"""A prefill engine and a decode engine as two linked systems."""

from collections.abc import Sequence

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.link import InProcessLink
from harness.core.linked import LinkedSystem
from harness.core.port import LINKED_MS_PER_STEP
from harness.engines.own.adapter import SwardenEngine


def side_systems(configs: Sequence[EngineConfig]) -> list[LinkedSystem]:
    """The two linked sides of a pair: prefill, then decode."""
    sides: list[LinkedSystem] = []
    for config, link in zip(configs, InProcessLink.pair(), strict=True):
        patience = (config.link_timeout_ms + config.link_retry_ms) // LINKED_MS_PER_STEP
        sides.append(LinkedSystem(SwardenEngine(config, link=link), sides, patience=patience))
    return sides
