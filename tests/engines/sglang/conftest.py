"""Each release runs in a process of its own, because a process can import only one."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from harness.engines.sglang.releases import SGLANG

RELEASES = ("0.5.12.post1", "0.5.23")  # `make test-engines` installs these


@pytest.fixture(scope="session", params=RELEASES)
def release(request):
    """The version of each release in turn."""
    return request.param


@pytest.fixture(scope="session")
def on_release() -> Iterator[Callable[..., Any]]:
    """Calls a function in the process of a release: `on_release(version, function, *arguments)`."""
    processes: dict[str, ProcessPoolExecutor] = {}

    def call(version: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if version not in SGLANG.installed():
            pytest.fail(f"sglang {version} is not installed; run: swarden engines install sglang=={version}")
        if version not in processes:
            processes[version] = ProcessPoolExecutor(1, get_context("spawn"))
        return processes[version].submit(function, *arguments).result()

    yield call
    for process in processes.values():
        process.shutdown()
