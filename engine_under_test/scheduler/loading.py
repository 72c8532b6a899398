"""The places that can hold KV, the requests that wait for KV from the host, and the copies in flight."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.host.copy_jobs import CopyJob
from swarden.engine_under_test.host.tier import HostTier
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.request import Request


class Storage(NamedTuple):
    """The pools, the prefix cache over them, and the host tier; `host` is None for an engine without one."""

    memory: KVMemory
    cache: PrefixCache
    host: HostTier | None = None


class LoadingQueue:
    """Requests that wait for a load, or for their first chunk after it, in the order of their admission."""

    def __init__(self, host: HostTier | None) -> None:
        self._host = host
        self._jobs: dict[Request, int] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._jobs))

    def __contains__(self, request: Request) -> bool:
        return request in self._jobs

    @property
    def under_way(self) -> Sequence[CopyJob]:
        """All copies in flight."""
        return () if self._host is None else self._host.under_way

    @property
    def ready(self) -> list[Request]:
        """The requests whose load has ended."""
        return [request for request, job in self._jobs.items() if not job]

    def awaited(self, request: Request) -> int:
        """The copy job that a request waits for; 0 if the request does not wait."""
        return self._jobs.get(request, 0)

    def add(self, request: Request, job: int) -> None:
        """Add a request that waits for a copy job; 0: the request does not wait."""
        self._jobs[request] = job

    def remove(self, request: Request) -> None:
        del self._jobs[request]

    def wake(self) -> list[Request]:
        """Complete the finished copies; returns the requests whose copy job has ended now."""
        if self._host is not None:
            self._host.poll()
        under_way = [job.id for job in self.under_way]
        woken = [request for request, job in self._jobs.items() if job and job not in under_way]
        self._jobs |= dict.fromkeys(woken, 0)
        return woken

    def wait(self) -> None:
        """Wait until the copies in flight end, up to the time limit of the store."""
        if self._host is not None:
            self._host.wait()

    def back_up(self) -> None:
        """Start the backups to the host that are due."""
        if self._host is not None:
            self._host.back_up()
