"""The Executor of a Dask cluster."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from distributed import Client, KilledWorker
from distributed.comm import resolve_address
from distributed.comm.core import CommClosedError

from swarden.harness.core.errors import UsageError

CONNECT_S = 10
LOST = (KilledWorker, CommClosedError)


@contextmanager
def cluster(address: str, workers: int | None) -> Iterator[tuple[Executor, int, tuple[type[Exception], ...]]]:
    """The executor, the number of jobs that run at a time (all threads of the nodes), and the errors of lost nodes."""
    try:
        resolve_address(address)  # the client would wait for a host that does not exist
        client: Any = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise UsageError(f"--scheduler: {address} does not answer: {error}; start it, or name another") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError as error:
            raise UsageError(f"--scheduler: {address} has no worker; start some: 'dask worker {address}'") from error
        threads = sum(client.nthreads().values())
        executor = client.get_executor(pure=False)
        try:
            yield executor, min(workers or threads, threads), LOST
        finally:  # its own context would wait for the running jobs, up to ten minutes after Ctrl-C
            executor.shutdown(wait=False)
