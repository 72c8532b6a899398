"""Each release runs in a process of its own, because a process can import only one."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from swarden.harness.core.registry import UnknownEngine, target_of


@pytest.fixture(scope="session")
def in_process_of() -> Iterator[Callable[..., Any]]:
    """Calls a function in the process of an engine: `in_process_of("NAME==VERSION", function, *arguments)`."""
    processes: dict[str, ProcessPoolExecutor] = {}

    def call(engine: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            target_of(engine)
        except UnknownEngine as error:
            pytest.fail(str(error))
        if engine not in processes:
            processes[engine] = ProcessPoolExecutor(1, get_context("spawn"))
        return processes[engine].submit(function, *arguments).result()

    yield call
    for process in processes.values():
        process.shutdown()
