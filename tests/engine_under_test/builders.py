"""Small real pools, caches and engines, and the words in which their tests ask what became of them.

Unless a test says otherwise a page holds 4 tokens and the window is 6, so that the last 8 tokens of
a prefix, two pages, must be live.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from engine_under_test.cache.node import Node
from engine_under_test.cache.prefix_cache import PrefixCache
from engine_under_test.cache.record import KVRecord
from engine_under_test.cache.tree import RadixTree
from engine_under_test.config import EngineConfig
from engine_under_test.engine import Engine, create_engine
from engine_under_test.events import Event, Launched
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import Ports
from engine_under_test.request import Request
from engine_under_test.sampling import SamplingParams
from engine_under_test.scheduler.custody import Custody
from engine_under_test.scheduler.other_side import OtherSide
from engine_under_test.scheduler.storage import Storage
from engine_under_test.units import Owner
from fakes.backing import FakeBacking
from fakes.catalog import FAULTS
from fakes.clock import FakeClock
from fakes.forward import FakeForward
from fakes.unsteady import UnsteadyForward
from harness.core.faults import FaultPlan
from harness.engines.own.adapter import VOCABULARY, ReferenceModel
from invariants.reference import Expectation

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
FULL_ONLY = replace(HYBRID, swa_pages=0, sliding_window=None)
SWA_ONLY = replace(HYBRID, full_pages=0)
UNSHARED = replace(HYBRID, prefix_sharing=False)

NEIGHBOUR = Owner("neighbour")
MOST_STEPS = 400

EventKind = TypeVar("EventKind", bound=Event)


class Heard:
    """An observer that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.notice = self.events.append

    def of(self, kind: type[EventKind]) -> list[EventKind]:
        return [event for event in self.events if isinstance(event, kind)]


class Stretch(NamedTuple):
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


def stretches(tree: RadixTree) -> list[Stretch]:
    """The nodes of a tree, parents before children."""
    names = [component.name for component in tree.components]
    return [
        Stretch(node.start, node.end, " ".join(name for name, live in zip(names, node.live, strict=True) if live))
        for node in nodes_of(tree)
    ]


def locks(tree: RadixTree, pool: str) -> dict[tuple[int, int], int]:
    """How many receipts cover each node in one pool, by its start and end."""
    [index] = [index for index, component in enumerate(tree.components) if component.name == pool]
    return {(node.start, node.end): node.locks[index] for node in nodes_of(tree)}


def free_pages(memory: KVMemory) -> dict[str, int]:
    return {ledger.name: ledger.num_free for ledger in memory.ledgers.ledgers}


def all_pages(config: EngineConfig) -> dict[str, int]:
    return {pool.name: pool.num_pages for pool in config.pools}


def hold(memory: KVMemory, pool: str, *, leaving: int) -> list[int]:
    """Take pages of one pool alone, as a neighbour on the same device would, until `leaving` are free."""
    [ledger] = [ledger for ledger in memory.ledgers.ledgers if ledger.name == pool]
    return ledger.take(max(0, ledger.num_free - leaving), owner=NEIGHBOUR)


def let_go(memory: KVMemory, pool: str, pages: Sequence[int]) -> None:
    [ledger] = [ledger for ledger in memory.ledgers.ledgers if ledger.name == pool]
    ledger.free(pages, owner=NEIGHBOUR, cause="let go")


class CacheBench:
    """A prefix cache over real pools, and requests that use it as the scheduler makes them."""

    def __init__(self, config: EngineConfig = HYBRID) -> None:
        self.heard = Heard()
        self.memory = KVMemory.for_config(config, self.heard)
        self.cache = PrefixCache(self.memory, sharing=config.prefix_sharing, observer=self.heard)
        self.custody = Custody(config, Storage(self.memory, self.cache), self.heard, OtherSide())
        self._num_requests = 0

    def start(self, tokens: Sequence[int], *, namespace: int = 0) -> Request:
        """A request that has a row and a lock on what is cached of its tokens."""
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
        self.custody.grow(record, end)
        record.launched_len = record.committed_len = end

    def slide(self, request: Request) -> None:
        self.custody.slide_windows([request], interval=1)

    def publish(self, request: Request) -> None:
        self.custody.publish(request, end=self.custody.record(request).committed_len)

    def leave(self, request: Request) -> None:
        self.custody.release(request, cause="finished")

    def cached(self, tokens: Sequence[int], *, namespace: int = 0, slid: bool = False) -> None:
        """Let a request compute, publish and leave; if it `slid`, its window was evicted before it published."""
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
    """What one client got, all steps together."""

    tokens: list[int] = field(default_factory=list)
    reason: str | None = None
    cached_tokens: int = 0
    num_retractions: int = 0


class Serving:
    """An engine with stand-ins behind its ports, and the clients that it answers."""

    def __init__(self, config: EngineConfig = HYBRID, *, heard: Heard | None = None, observed: bool = True) -> None:
        self.config = config
        self.heard = heard or Heard()
        self.clock = FakeClock()
        self.faults = FaultPlan(FAULTS)
        forward = UnsteadyForward(FakeForward(ReferenceModel()), self.faults)
        ports = Ports(forward, self.clock, self.heard if observed else None, FakeBacking(self.faults))
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
            prompt,
            SamplingParams(max_new_tokens, stop_token_ids),
            namespace=namespace,
            priority=priority,
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
        """Step until nothing is left to do."""
        for _ in range(MOST_STEPS):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError(f"still at work after {MOST_STEPS} steps: {self.received}")

    def until(self, kind: type[EventKind]) -> EventKind:
        """Step until the first event of a kind."""
        for _ in range(MOST_STEPS):
            if heard := self.heard.of(kind):
                return heard[0]
            self.step()
        raise AssertionError(f"no {kind.__name__} in {MOST_STEPS} steps: {self.received}")

    def serve(self, prompt: Sequence[int], *, max_new_tokens: int = 4, namespace: int = 0) -> Received:
        """Submit one request and wait until nothing is left to do."""
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
        """By pool, rows among them, how many units wait for which launch."""
        books = (*self.engine.memory.ledgers.ledgers, self.engine.memory.table.rows)
        return {book.name: {launch: len(units) for launch, units in book.fenced_units.items()} for book in books}

    def emptied(self) -> bool:
        """Flush; is every page of every pool and every row free then, and nothing behind a fence or a lock?"""
        self.engine.flush()
        books = (*self.engine.memory.ledgers.ledgers, self.engine.memory.table.rows)
        is_full = all(book.num_free == book.capacity for book in books)
        return is_full and not self.engine.scheduler.custody.departures.waiting

    def tokens(self, request_id: int) -> list[int]:
        return self.received[request_id].tokens

    def reason(self, request_id: int) -> str | None:
        return self.received[request_id].reason

    @property
    def passes(self) -> list[tuple[tuple[int, int, int], ...]]:
        """Per forward pass the requests in it, each with the positions [start, end) that it computed."""
        return [launched.entries for launched in self.heard.of(Launched)]

    @property
    def free(self) -> dict[str, int]:
        return free_pages(self.engine.memory)
