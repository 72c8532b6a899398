"""The releases of SGLang that the tests use."""

from typing import Any

import pytest

from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.parts.host_tier import SglangHostTier
from swarden.harness.kit.settings import made

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


def host_of(port: Any) -> Any:
    """The part of an engine with its host pools."""
    [host] = [part for part in port.parts if isinstance(part, SglangHostTier)]
    return host
