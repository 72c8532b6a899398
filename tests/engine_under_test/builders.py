"""Small pools, caches and engines for the tests, and helpers that read their state.

By default a page holds 4 tokens and the window is 6, so the last 8 tokens of a prefix, two pages, must be live.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import pytest

from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.cache.tree import RadixTree
from swarden.engine_under_test.components import FullAttention, SlidingWindow
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine, create_engine
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.request import Request
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.scheduler.custody import Custody
from swarden.engine_under_test.scheduler.loading import Storage
from swarden.engine_under_test.scheduler.other_side import OtherSide
from swarden.fakes.backing import FakeBacking
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.fakes.unsteady import UnsteadyForward
from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.own.faults import FAULTS
from swarden.harness.kit.tags import VOCABULARY, TagModel
from swarden.invariants.events import Event, Launched, Owner
from swarden.invariants.reference import Expectation

PAGE, WINDOW = 4, 6
HYBRID = EngineConfig(
    page_size=PAGE,
    full_pages=16,
    swa_pages=12,
    sliding_window=WINDOW,
    max_running_requests=4,
    max_context_len=64,
    chunk_len=16,
)
FULL, SWA = FullAttention("full", 16, PAGE), SlidingWindow("swa", 12, PAGE, WINDOW)  # the pools of HYBRID
FULL_ONLY = replace(HYBRID, swa_pages=0, sliding_window=None)
SWA_ONLY = replace(HYBRID, full_pages=0)
UNSHARED = replace(HYBRID, prefix_sharing=False)
ALL_POOLS = pytest.mark.parametrize(
    "config", [HYBRID, FULL_ONLY, SWA_ONLY, UNSHARED], ids=["hybrid", "full only", "swa only", "no sharing"]
)

NEIGHBOUR = Owner("neighbour")
MOST_STEPS = 400

EventKind = TypeVar("EventKind", bound=Event)


class EventLog:
    """An observer that records all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.notice = self.events.append

    def of(self, kind: type[EventKind]) -> list[EventKind]:
        return [event for event in self.events if isinstance(event, kind)]


class NodeSpan(NamedTuple):
    """One node: tokens [start, end), and the names of the pools in which its pages are live."""

    start: int
    end: int
    live: str


def nodes_of(tree: RadixTree) -> Iterator[Node]:
    """Every node but the roots, parents before children."""
    stack = list(tree.roots.values())[::-1]
    while stack:
        node = stack.pop()
        if node.in_tree:
            yield node
        stack.extend(reversed(node.children.values()))


def node_spans(tree: RadixTree) -> list[NodeSpan]:
    """The nodes of a tree, parents before children."""
    names = [component.name for component in tree.components]
    return [
        NodeSpan(node.start, node.end, " ".join(name for name, live in zip(names, node.live, strict=True) if live))
        for node in nodes_of(tree)
    ]


def locks(tree: RadixTree, pool: str) -> dict[tuple[int, int], int]:
    """The number of receipts that cover each node in one pool, by the start and end of the node."""
    [index] = [index for index, component in enumerate(tree.components) if component.name == pool]
    return {(node.start, node.end): node.locks[index] for node in nodes_of(tree)}


def free_pages(memory: KVMemory) -> dict[str, int]:
    return {ledger.name: ledger.num_free for ledger in memory.ledgers.ledgers}


def all_pages(config: EngineConfig) -> dict[str, int]:
    return {pool.name: pool.num_pages for pool in config.pools}


def hold(memory: KVMemory, pool: str, *, leaving: int) -> list[int]:
    """Take pages of one pool for another owner until `leaving` are free; returns the pages."""
    [ledger] = [ledger for ledger in memory.ledgers.ledgers if ledger.name == pool]
    return ledger.take(max(0, ledger.num_free - leaving), owner=NEIGHBOUR)


def release_held(memory: KVMemory, pool: str, pages: Sequence[int]) -> None:
    [ledger] = [ledger for ledger in memory.ledgers.ledgers if ledger.name == pool]
    ledger.free(pages, owner=NEIGHBOUR, cause="released")


def flush_frees_all(engine: Engine) -> bool:
    """Flush; True if every page and every row is free after that, and no lock waits for a pass."""
    engine.flush()
    ledgers = (*engine.memory.ledgers.ledgers, engine.memory.table.rows)
    is_full = all(ledger.num_free == ledger.capacity for ledger in ledgers)
    return is_full and not engine.scheduler.custody.departures.waiting


class CacheBench:
    """A prefix cache over real pools; the methods change its requests as the scheduler would."""

    def __init__(self, config: EngineConfig = HYBRID) -> None:
        self.log = EventLog()
        self.memory = KVMemory.for_config(config, self.log)
        self.cache = PrefixCache(self.memory, sharing=config.prefix_sharing, observer=self.log)
        self.custody = Custody(config, Storage(self.memory, self.cache), self.log, OtherSide())
        self._num_requests = 0

    def start(self, tokens: Sequence[int], *, namespace: int = 0) -> Request:
        """Admit a request: it gets a row, and a lock on the cached prefix of its tokens."""
        self._num_requests += 1
        request = Request(self._num_requests, len(tokens), list(tokens), SamplingParams(0), namespace=namespace)
        match = self.cache.match(request.tokens, namespace)
        [row] = self.memory.table.rows.take(1, owner=request.owner)
        length = match.length
        record = KVRecord(request.owner, row, self.cache.lock(match), length, length, length, length)
        record.write(self.memory.table, 0, match.handles)
        self.custody.open(request, record)
        return request

    def compute(self, request: Request, end: int) -> None:
        record = self.custody.record(request)
        self.custody.grow(record, end, end=end)
        record.launched_len = record.committed_len = end

    def slide(self, request: Request) -> None:
        self.custody.slide_windows([request], interval=1)

    def publish(self, request: Request) -> None:
        self.custody.publish(request, end=self.custody.record(request).committed_len)

    def leave(self, request: Request) -> None:
        self.custody.release(request, cause="finished")

    def insert(self, tokens: Sequence[int], *, namespace: int = 0, slid: bool = False) -> None:
        """Insert a prefix: a request computes, publishes and leaves.  With `slid`, its window slides first."""
        request = self.start(tokens, namespace=namespace)
        self.compute(request, len(tokens))
        if slid:
            self.slide(request)
        self.publish(request)
        self.leave(request)

    def match_len(self, tokens: Sequence[int], *, namespace: int = 0) -> int:
        return self.cache.match(list(tokens), namespace).length

    @property
    def free(self) -> dict[str, int]:
        return free_pages(self.memory)

    @property
    def evictable(self) -> dict[str, int]:
        return {pool.name: self.cache.evictable(pool.name) for pool in self.memory.pools}


@dataclass
class Received:
    """The outputs of all steps for one request."""

    tokens: list[int] = field(default_factory=list)
    reason: str | None = None
    cached_tokens: int = 0
    num_retractions: int = 0


class Serving:
    """An engine with fakes behind its ports, and the outputs of its requests."""

    def __init__(self, config: EngineConfig = HYBRID, *, log: EventLog | None = None, observed: bool = True) -> None:
        self.config = config
        self.log = log or EventLog()
        self.clock = FakeClock()
        self.faults = FaultPlan(FAULTS)
        forward = UnsteadyForward(FakeForward(TagModel()), self.faults)
        ports = Ports(forward, self.clock, self.log if observed else None, FakeBacking(self.faults))
        self.engine: Engine = create_engine(config, ports=ports)
        self.received: dict[int, Received] = {}

    def submit(
        self,
        prompt: Sequence[int],
        *,
        max_new_tokens: int = 4,
        namespace: int = 0,
        stop_token_ids: Sequence[int] = (),
        priority: int = 0,
    ) -> int:
        request_id = self.engine.submit(
            prompt, SamplingParams(max_new_tokens, stop_token_ids), namespace=namespace, priority=priority
        )
        self.received[request_id] = Received()
        return request_id

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            for output in self.engine.step():
                received = self.received.setdefault(output.request_id, Received())
                received.tokens += output.token_ids
                received.reason = output.finish_reason
                received.cached_tokens = output.cached_tokens
                received.num_retractions = output.num_retractions

    def run(self) -> None:
        """Step until the engine has no work."""
        for _ in range(MOST_STEPS):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError(f"the engine still has work after {MOST_STEPS} steps: {self.received}")

    def until(self, kind: type[EventKind]) -> EventKind:
        """Step until the first event of a kind."""
        for _ in range(MOST_STEPS):
            if events := self.log.of(kind):
                return events[0]
            self.step()
        raise AssertionError(f"no {kind.__name__} in {MOST_STEPS} steps: {self.received}")

    def serve(self, prompt: Sequence[int], *, max_new_tokens: int = 4, namespace: int = 0) -> Received:
        """Submit one request, and step until the engine has no work."""
        request_id = self.submit(prompt, max_new_tokens=max_new_tokens, namespace=namespace)
        self.run()
        return self.received[request_id]

    def expected(self, prompt: Sequence[int], *, max_new_tokens: int, namespace: int = 0) -> list[int]:
        """The output of the same model without any cache."""
        windows = [pool.window for pool in self.config.pools]
        expectation = Expectation(namespace, len(prompt), list(prompt))
        for position in range(len(prompt), len(prompt) + max_new_tokens):
            expectation.extend([expectation.next_token(position, windows=windows, vocabulary=VOCABULARY)])
        return expectation.tokens[len(prompt) :]

    def fenced(self) -> dict[str, dict[int, int]]:
        """By pool, and for the rows: the number of fenced units by launch."""
        ledgers = (*self.engine.memory.ledgers.ledgers, self.engine.memory.table.rows)
        return {
            ledger.name: {launch: len(units) for launch, units in ledger.fenced_units.items()} for ledger in ledgers
        }

    def flush_frees_all(self) -> bool:
        return flush_frees_all(self.engine)

    def tokens(self, request_id: int) -> list[int]:
        return self.received[request_id].tokens

    def reason(self, request_id: int) -> str | None:
        return self.received[request_id].reason

    @property
    def passes(self) -> list[tuple[tuple[int, int, int], ...]]:
        """The entries of each forward pass: request id, and the positions [start, end) that were computed."""
        return [launched.entries for launched in self.log.of(Launched)]

    @property
    def free(self) -> dict[str, int]:
        return free_pages(self.engine.memory)
