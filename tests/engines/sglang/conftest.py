"""The releases of SGLang that the tests use."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from swarden.harness.core.driver import Checking, Driver
from swarden.harness.core.ops import Op
from swarden.harness.core.registry import target_of
from swarden.harness.core.target import ENGINE, PAIR, prepare
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.parts.host_tier import SglangHostTier
from swarden.harness.kit.settings import made
from swarden.invariants.catalog import catalog_of
from swarden.invariants.transition import Transition

RELEASES = ("0.5.12.post1", "0.5.23")  # `make test-engines` installs these


@pytest.fixture(scope="session", params=RELEASES)
def release(request):
    """The version of each release in turn."""
    return request.param


@pytest.fixture(scope="session")
def on_release(in_process_of):
    """Calls a function in the process of a release: `on_release(version, function, *arguments)`."""
    return lambda version, function, *arguments: in_process_of(f"sglang=={version}", function, *arguments)


def config_of(**settings: Any) -> SglangConfig:
    """The configuration with these settings, also of its parts."""
    return made(SglangConfig, settings)


def driver_of(version: str, *configs: SglangConfig, observe: Callable[[Transition], None] | None = None) -> Driver:
    """A driver of a scheduler, or of the two of a pair, that checks all laws."""
    target = target_of(f"sglang=={version}")
    prepare(target)
    systems = target.systems(PAIR if len(configs) > 1 else ENGINE, configs, "")
    return Driver(systems, checking=Checking(catalog_of(target.contracts), code=target.code), observe=observe)


def laws_that_fail(
    driver: Driver, ops: Iterable[Op], plant: Callable[[Any], None] | None = None, at: int = 0
) -> set[str]:
    """The laws that fail with these ops; `plant` gets the port of the first scheduler before the op at this index."""
    for index, op in enumerate(ops):
        if index == at and plant is not None:
            plant(port_of(driver))
        if driver.failure is None:
            driver.apply(op)
    return {one.split("/")[0] for one in driver.failure.fingerprints} if driver.failure is not None else set()


def port_of(driver: Driver, engine: int = 0) -> Any:
    system: Any = driver.systems[engine]
    return system.port


def host_of(port: Any) -> Any:
    """The part of an engine with its host pools."""
    [host] = [part for part in port.parts if isinstance(part, SglangHostTier)]
    return host
