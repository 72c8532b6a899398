"""A cache with a host tier, and a host store whose jobs end when the test ends them.

Each slot holds its token instead of KV, so a test can check the content of a copy.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from swarden.engine_under_test.cache.match import Match
from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.tree import RadixTree
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.host.tier import HostCopier, HostTier
from swarden.engine_under_test.ports import Acknowledgement, HostStore, PageCopy, Ports
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.scheduler.custody import Custody
from swarden.engine_under_test.scheduler.loading import Storage
from swarden.engine_under_test.scheduler.other_side import OtherSide
from tests.engine_under_test.builders import HYBRID, CacheBench, NodeSpan, nodes_of

HOSTED = replace(HYBRID, host_full_pages=32, host_swa_pages=24, load_back_threshold=1)
WRITE_BACK = replace(HOSTED, host_policy="write_back")
SELECTIVE = replace(HOSTED, host_policy="write_through_selective")
HOSTED_FULL_ONLY = replace(HOSTED, swa_pages=0, sliding_window=None, host_swa_pages=0)
HOSTED_SWA_ONLY = replace(HOSTED, full_pages=0, host_full_pages=0)


class ManualStore:
    """A host store that copies a job when `end` is called for it, in any order.

    With `ends_on_wait` a wait ends all jobs; with `ends_on_poll` a poll does.
    """

    def __init__(self) -> None:
        self.begun: dict[int, Sequence[PageCopy]] = {}
        self.ends_on_wait = False
        self.ends_on_poll = False
        self.num_waits = 0
        self._copier = HostCopier()
        self._ended: list[Acknowledgement] = []

    def begin(self, job: int, copies: Sequence[PageCopy]) -> None:
        self.begun[job] = copies

    def end(self, *jobs: int) -> None:
        for job in jobs:
            self._copier.begin(job, self.begun.pop(job))
        self._ended += self._copier.acknowledged()

    def fail(self, *jobs: int) -> None:
        for job in jobs:
            del self.begun[job]
            self._ended.append(Acknowledgement(job, "the copy failed"))

    def acknowledge(self, job: int) -> None:
        """Acknowledge a job, even one that was never begun."""
        self._ended.append(Acknowledgement(job))

    def acknowledged(self) -> list[Acknowledgement]:
        if self.ends_on_poll:
            self.end(*self.begun)
        ended, self._ended = self._ended, []
        return ended

    def wait(self) -> None:
        self.num_waits += 1
        if self.ends_on_wait:
            self.end(*self.begun)


class FailingStore:
    """A host store whose jobs all fail; the test fails after `most` jobs."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._begun: list[int] = []

    def begin(self, job: int, copies: Sequence[PageCopy]) -> None:
        assert self._left, f"job {job} is above the limit"
        self._left -= 1
        self._begun.append(job)

    def acknowledged(self) -> list[Acknowledgement]:
        begun, self._begun = self._begun, []
        return [Acknowledgement(job, "the copy failed") for job in begun]

    def wait(self) -> None:
        """All jobs have failed already."""


class HostBench:
    """A cache bench with a host tier."""

    def __init__(self, config: EngineConfig = HOSTED, store: HostStore | None = None) -> None:
        self.device = CacheBench(config)
        self.store = ManualStore()
        self.memory, self.cache, self.log = self.device.memory, self.device.cache, self.device.log
        assert self.memory.host is not None, "no pools on the host"
        self.on_host = self.memory.host
        ports = Ports(observer=self.log, host=store or self.store)
        self.tier = HostTier.for_config(config, self.memory, self.cache, ports)
        self.device.custody = Custody(config, Storage(self.memory, self.cache, self.tier), self.log, OtherSide())

    @property
    def tree(self) -> RadixTree:
        return self.cache.tree

    def insert(self, tokens: Sequence[int], *, slid: bool = False) -> None:
        """Insert a prefix: a request computes, publishes and leaves.  With `slid`, its window slides first."""
        request = self.device.start(tokens)
        self.device.compute(request, len(tokens))
        self._fill(request)
        if slid:
            self.device.slide(request)
        self.device.publish(request)
        self.device.leave(request)

    def insert_with_copy(self, tokens: Sequence[int], *, slid: bool = False) -> None:
        """Insert a prefix, and copy it to the host."""
        self.insert(tokens, slid=slid)
        self.tier.back_up()
        self.settle()

    def insert_on_host(self, tokens: Sequence[int]) -> None:
        """Insert a prefix, copy it to the host, and flush the device."""
        self.insert_with_copy(tokens)
        self.cache.flush()

    def settle(self) -> None:
        """End all jobs in flight, in order, and process them."""
        self.store.end(*self.store.begun)
        self.tier.poll()

    def match(self, tokens: Sequence[int]) -> Match:
        return self.cache.match(list(tokens), 0)

    def load(self, tokens: Sequence[int]) -> int:
        """Begin the load for a request with these tokens; returns the id of the job."""
        match = self.match(tokens)
        return self.tier.load(match, self.tier.pages_to_load(match))

    def content(self, tokens: Sequence[int]) -> dict[str, list[int]]:
        """By pool, the content of the pages that a reader of the match of these tokens reads."""
        match = self.match(tokens)
        content = {}
        for pool, length in zip(self.memory.pools, self.tree.covered_lens(match.length), strict=True):
            pages = self.memory.ledgers.pages_of(pool.name, match.handles)[-length // self.memory.page_size :]
            content[pool.name] = self.memory.store.kv(pool.name)[pages].flatten().tolist()
        return content

    def nodes(self) -> list[Node]:
        """The nodes of the tree, parents before children."""
        return list(nodes_of(self.tree))

    def host_free(self) -> dict[str, int]:
        """The number of free pages, by pool of the host."""
        return {ledger.name: ledger.num_free for ledger in self.on_host.ledgers}

    def _fill(self, request: Request) -> None:
        """Write the computed tokens of a request into its private pages, whole pages only."""
        record, page_size = self.device.custody.record(request), self.memory.page_size
        first, end = record.protected_len // page_size, record.committed_len // page_size
        tokens = torch.tensor(request.tokens[first * page_size : end * page_size], dtype=torch.int64).view(
            -1, page_size
        )
        for pool in self.memory.pools:
            pages = self.memory.ledgers.pages_of(pool.name, record.handles[first:end])
            self.memory.store.kv(pool.name)[pages] = tokens


def copies(tree: RadixTree) -> list[NodeSpan]:
    """The nodes of a tree, parents before children, with the pools in which the host has a copy."""
    names = [component.name for component in tree.components]
    return [
        NodeSpan(
            node.start, node.end, " ".join(name for name, pages in zip(names, node.host.pages, strict=True) if pages)
        )
        for node in nodes_of(tree)
    ]
