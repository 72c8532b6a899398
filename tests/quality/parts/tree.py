"""The prefix cache of one engine alone, over its pools, beside a naive model."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from swarden.engine_under_test.cache.match import Match
from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.pools.paired import shortage
from swarden.engine_under_test.units import num_pages
from swarden.harness.core.ops import Recipe
from swarden.harness.engines.own.neighbour import Neighbour
from swarden.harness.search.traffic.draws import one_option, ordinals, rarely, recipes
from swarden.invariants.reference import namespace_tag, next_tag
from tests.quality.parts.playing import configurations, expect
from tests.quality.parts.requests import Prompts, Requests
from tests.quality.parts.tree_model import Hold, TreeModel

PAGE_SIZES = (4, 1, 2)  # so that most recipes have whole pages
CONFIGURATIONS = configurations(page_sizes=PAGE_SIZES, kinds=("both",) * 10 + ("full", "swa"), sharing=(True,))

namespaces = rarely(st.just(1))
deads = st.integers(0, 6)


class PageFact(NamedTuple):
    """One cached page: its first position, its unit, state and locks in each pool, its last use, its end of a node."""

    start: int
    units: tuple[int, ...]
    live: tuple[bool, ...]
    locks: tuple[int, ...]
    last_used: int
    ends_node: bool


@dataclass(slots=True)
class Reader:
    """A holder of a lock on a cached prefix: its record, without private pages, and the lock of the model."""

    record: KVRecord
    hold: Hold


class TreePart(RuleBasedStateMachine):
    """A KVMemory, a PrefixCache, and readers; each action is done to the cache and to the model."""

    @initialize(config=CONFIGURATIONS, first=st.lists(recipes(), min_size=1, max_size=4))
    def begin(self, config: EngineConfig, first: list[Recipe]) -> None:
        self.max_len = config.max_context_len
        self.memory = KVMemory.for_config(config, None)
        self.pools = [pool.name for pool in self.memory.pools]
        self.windowed = [pool for pool in self.memory.pools if pool.leaves_tombstones]
        self.cache = PrefixCache(self.memory, sharing=True, observer=None)
        self.requests = Requests(self.memory, self.cache)
        self.neighbour = Neighbour(self.memory)
        self.model = TreeModel(config)
        self.readers: list[Reader] = []
        self.prompts = Prompts()
        self.num_requests = 0
        for recipe in first:
            self.insert(recipe, 0, 0)

    @rule(recipe=recipes(), namespace=namespaces, dead=deads)
    def insert(self, recipe: Recipe, namespace: int, dead: int) -> None:
        """Act as a request from admission to finish, without a forward. The prompt is cut to the available pages.

        |matched, locked|fresh, windowed pages gone|frontier|fresh .... |whole pages end|private rest|
        """
        tokens, page_size = self.prompts.expand(recipe)[: self.max_len], self.memory.page_size
        match, names = self.match(tokens, namespace)
        shared = len(match.handles)
        count = min(num_pages(len(tokens), page_size) - shared, self.num_available(match, names))
        tokens = tokens[: (shared + count) * page_size]
        if count <= 0 or len(tokens) < page_size:
            return
        reader = self.open(match, names)
        self.requests.grow(reader.record, count, len(tokens), self.make_room)
        self.slide_window(reader, self.frontier(reader.record, dead))
        self.publish(reader, tokens, namespace)
        self.close(reader)
        self.prompts.add(tokens)

    @rule(recipe=recipes(), namespace=namespaces)
    def lock(self, recipe: Recipe, namespace: int) -> None:
        """Match and lock a prefix. If no page matches, the lock covers no page."""
        match, names = self.match(self.prompts.expand(recipe)[: self.max_len], namespace)
        if self.num_available(match, names) >= 0:
            self.readers.append(self.open(match, names))

    @rule(recipe=recipes(), cut=st.integers(0, 5), receipt=ordinals(), page=st.integers(0, 2))
    def visit(self, recipe: Recipe, cut: int, receipt: int, page: int) -> None:
        """A prompt is inserted, a reader of a longer prompt locks it, and the window of some reader slides."""
        longer = Recipe(path=(*recipe.path, 0, 0), stretch=max(4, recipe.stretch))
        self.insert(longer, 0, 0)
        self.lock(Recipe(path=(*longer.path, 0), stretch=longer.stretch, cut=cut), 0)
        self.slide(receipt, page)

    @precondition(lambda self: self.readers)
    @rule(receipts=st.lists(ordinals(), min_size=1, max_size=3))
    def unlock(self, receipts: list[int]) -> None:
        for receipt in receipts[: len(self.readers)]:
            self.close(self.readers.pop(receipt % len(self.readers)))

    @rule(receipt=ordinals(), page=st.integers(0, 12))
    def slide(self, receipt: int, page: int) -> None:
        """Slide the window of a reader that has windowed pages locked, by at least one page."""
        readers = [reader for reader in self.readers if self.first_windowed(reader) is not None]
        if readers:
            reader = readers[receipt % len(readers)]
            first, size = self.first_windowed(reader) or 0, self.memory.page_size
            self.slide_window(reader, min(max(page, first + 1), reader.record.protected_len // size) * size)

    @rule(need=st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 4)))
    def evict(self, need: Sequence[int]) -> None:
        self.evict_pages(dict(zip(self.pools, need, strict=False)))

    @rule(pool=st.integers(0, 2), pages=one_option(0, 1, 3))
    def pressure(self, pool: int, pages: int) -> None:
        self.neighbour.hold(pool, pages)

    @rule()
    def flush(self) -> None:
        self.cache.flush()
        self.model.evict([self.model.counts(pool)[0] for pool in range(len(self.pools))])

    @rule()
    def drain(self) -> None:
        """The neighbour leaves, every reader unlocks, the cache is flushed, and then nothing is cached."""
        for pool in range(len(self.memory.ledgers.ledgers)):
            self.neighbour.hold(pool, 0)
        while self.readers:
            self.close(self.readers.pop())
        self.flush()
        expect("pages after a drain", {}, self.model.pages)

    @invariant()
    def agrees(self) -> None:
        """Every page, every counter and the free units are those of the model; no request owns a private page now."""
        size = self.model.page_size
        expected = {
            name: PageFact(
                page.index * size,
                tuple(page.units),
                tuple(map(bool, page.units)),
                tuple(page.locks),
                page.last_used,
                page.ends_run,
            )
            for name, page in self.model.pages.items()
        }
        found = dict(self.facts())
        names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        expect("pages", [expected.get(name) for name in names], [found.get(name) for name in names])
        for index, (pool, ledger) in enumerate(zip(self.pools, self.memory.ledgers.ledgers, strict=True)):
            counts = (self.cache.tree.evictable[index], self.cache.tree.protected[index])
            expect(f"{pool}: evictable and protected", self.model.counts(index), counts)
            held = {*self.neighbour.held(pool), *[page.units[index] for page in self.model.pages.values()]}
            free = Counter(unit for unit in range(1, ledger.capacity + 1) if unit not in held)
            expect(f"{pool}: free", free, Counter(ledger.free_units))

    def facts(self) -> Iterator[tuple[int, PageFact]]:
        """Every page of the tree, with its name in the model."""
        size, ledgers, roots = self.memory.page_size, self.memory.ledgers, self.cache.tree.roots
        stack: list[tuple[Node, int]] = [(root, namespace_tag(space)) for space, root in roots.items()]
        while stack:
            node, tag = stack.pop()
            names = list(accumulate(node.key, next_tag, initial=tag))[size::size]
            units = zip(*[ledgers.pages_of(pool, node.handles) for pool in self.pools], strict=True)
            live, locks = tuple(node.live), tuple(node.locks)
            for index, (name, page) in enumerate(zip(names, units, strict=True)):
                yield name, PageFact(node.start + index * size, page, live, locks, node.last_used, name == names[-1])
            stack += [(child, names[-1] if names else tag) for child in node.children.values()]

    def match(self, tokens: Sequence[int], namespace: int) -> tuple[Match, list[int]]:
        """The match of the cache, and the page names of the model's match."""
        match = self.cache.match(tokens, namespace)
        names = self.model.match(self.model.names(namespace, tokens[:-1]))
        expected = (len(names) * self.memory.page_size, self.model.shown(names))
        expect("match", expected, (match.length, match.handles[:]))
        return match, names

    def num_available(self, match: Match, names: Sequence[int]) -> int:
        expected = dict(zip(self.pools, self.model.pages_to_lock(names), strict=True))
        expect("pages to lock", expected, self.cache.pages_to_lock(match))
        return self.requests.num_available(match)

    def open(self, match: Match, names: Sequence[int]) -> Reader:
        """Take a row and lock the match."""
        self.num_requests += 1
        record = self.requests.open(self.num_requests, match)
        self.model.use(names)
        return Reader(record, self.model.lock(names))

    def close(self, reader: Reader) -> None:
        self.requests.close(reader.record)
        self.model.unlock(reader.hold)

    def make_room(self, count_by_pool: Mapping[str, int]) -> None:
        """Evict the pages that the pools lack."""
        self.evict_pages(shortage(self.memory.ledgers.ledgers, count_by_pool))

    def evict_pages(self, need: Mapping[str, int]) -> None:
        self.cache.evict(need)
        self.model.evict([need.get(pool, 0) for pool in self.pools])

    def publish(self, reader: Reader, tokens: Sequence[int], namespace: int) -> None:
        """Publish all whole pages of `tokens`."""
        record, size, ledgers = reader.record, self.memory.page_size, self.memory.ledgers
        names = self.model.names(namespace, tokens)
        incoming = list(zip(*[ledgers.pages_of(pool, record.handles) for pool in self.pools], strict=True))
        protected, absent = record.protected_len // size, record.absent
        spans = [absent.get(pool, ()) for pool in self.pools]
        borders = [{border // size for span in of_pool for border in (span.start, span.stop)} for of_pool in spans]
        self.cache.publish(record, tokens, namespace=namespace, end=len(tokens))
        if len(names) > protected:
            self.model.insert(names, incoming[: len(names)], protected=protected, borders=borders)
            before, reader.hold = reader.hold, self.model.lock(names)
            self.model.unlock(before)
            expect("handles of the publisher", self.model.shown(names), record.handles[: len(names)])
            row = list(self.memory.table.read(record.row, 0, len(record.handles)))
            expect("row of the publisher", record.handles[:], row)

    def frontier(self, record: KVRecord, dead: int) -> int:
        """The frontier after the first `dead` private pages, limited to the largest frontier of a committed request."""
        if not self.windowed or not dead:
            return 0
        max_frontier = min(pool.frontier(record.committed_len) for pool in self.windowed)
        return min(record.protected_len + dead * self.memory.page_size, max_frontier)

    def slide_window(self, reader: Reader, frontier: int) -> None:
        """Unlock the tree's pages below `frontier`, and free the private ones.

        |the tree's, unlocked |protected_len|..freed..|frontier|
        """
        record, ledgers, page_size = reader.record, self.memory.ledgers, self.memory.page_size
        before, receipt = record.highest_frontier, record.receipt
        if frontier <= before:
            return
        record.receipt = self.cache.slide(receipt, {pool.name: frontier for pool in self.windowed})
        reader.hold = self.model.slide(reader.hold, frontier // page_size)
        if record.receipt is receipt:  # it covers no page there
            return
        first, end = before // page_size, frontier // page_size
        border = min(max(first, record.protected_len // page_size), end)
        for pool in self.windowed:
            private = record.held(pool.name, border, end, page_size=page_size)
            ledgers.free_alone(pool.name, private, owner=record.owner, cause="slid")
            record.write(self.memory.table, first, ledgers.without(pool.name, record.handles[first:end]))
            record.frontiers[pool.name] = frontier

    def first_windowed(self, reader: Reader) -> int | None:
        """The index of the first page that a reader has locked in a windowed pool; None if there is none."""
        starts = zip(reader.hold.starts, self.model.tails, strict=True)
        return next((one for one, tail in starts if tail is not None and one < len(reader.hold.names)), None)
