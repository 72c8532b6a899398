"""A prefix cache and a naive model of it, which get to do the same things."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from engine_under_test.cache.match import Match
from engine_under_test.cache.node import Node
from engine_under_test.cache.prefix_cache import PrefixCache
from engine_under_test.cache.record import KVRecord
from engine_under_test.config import EngineConfig
from engine_under_test.pools.memory import KVMemory
from engine_under_test.ports import Observer
from harness.components.neighbour import Neighbour
from harness.components.tree.model import Hold, TreeModel
from invariants.events import Modelled
from invariants.reference import namespace_tag, next_tag


class Found(NamedTuple):
    """What the cache found of a prompt, and the names of the pages that the model found."""

    match: Match
    names: list[int]


@dataclass(slots=True)
class Reader:
    """Who has something locked: a record, and the model's side of its receipt."""

    record: KVRecord
    hold: Hold


class PageFact(NamedTuple):
    """One cached page: where it starts, its unit, state and locks in each pool, and whether a node ends with it."""

    start: int
    units: tuple[int, ...]
    live: tuple[bool, ...]
    locks: tuple[int, ...]
    ends_node: bool


class ModelledCache:
    """A PrefixCache; `told` are the model's forecasts and what came of them."""

    def __init__(self, config: EngineConfig, memory: KVMemory, observer: Observer) -> None:
        self.cache = PrefixCache(memory, sharing=config.prefix_sharing, observer=observer)
        self.model = TreeModel(config)
        self.told: list[NamedTuple] = []
        self._memory = memory
        self._sharing = config.prefix_sharing
        self._pools = [pool.name for pool in memory.pools]

    def match(self, tokens: Sequence[int], namespace: int) -> Found:
        match = self.cache.match(tokens, namespace)
        names = self.model.match(self.model.names(namespace, tokens[:-1]))
        expected = (len(names) * self._memory.page_size, self.model.shown(names))
        self._tell("match", expected, (match.length, match.handles[:]))
        return Found(match, names)

    def pages_to_lock(self, found: Found) -> dict[str, int]:
        wanted = self.cache.pages_to_lock(found.match)
        self._tell("pages to lock", dict(zip(self._pools, self.model.pages_to_lock(found.names), strict=True)), wanted)
        return wanted

    def lock(self, found: Found, record: KVRecord) -> Reader:
        """A reader of what was found, with the receipt of `record`."""
        self.model.use(found.names)
        return Reader(record, self.model.lock(found.names))

    def unlock(self, reader: Reader) -> None:
        self.cache.unlock(reader.record.receipt)
        self.model.unlock(reader.hold)

    def slide(self, reader: Reader, frontier: int) -> bool:
        """False where the receipt did not cover any page below `frontier`."""
        before = reader.record.receipt
        reader.record.receipt = self.cache.slide(before, frontier)
        reader.hold = self.model.slide(reader.hold, frontier // self._memory.page_size)
        return reader.record.receipt is not before

    def first_windowed(self, reader: Reader) -> int | None:
        """The first page that a reader has locked in a window; None where there is none."""
        return next(
            (
                start
                for start, tail in zip(reader.hold.starts, self.model.tails, strict=True)
                if tail is not None and start < len(reader.hold.names)
            ),
            None,
        )

    def publish(self, reader: Reader, tokens: Sequence[int], namespace: int) -> None:
        """Publish all whole pages of `tokens`."""
        record, size, ledgers = reader.record, self._memory.page_size, self._memory.ledgers
        names = self.model.names(namespace, tokens)
        incoming = list(zip(*[ledgers.pages_of(pool, record.handles) for pool in self._pools], strict=True))
        protected, frontier = record.protected_len // size, record.frontier // size
        self.cache.publish(record, tokens, namespace=namespace, end=len(tokens))
        if self._sharing and len(names) > protected:
            self.model.insert(names, incoming[: len(names)], protected=protected, frontier=frontier)
            before, reader.hold = reader.hold, self.model.lock(names)
            self.model.unlock(before)
            self._tell("handles of the publisher", self.model.shown(names), record.handles[: len(names)])
            row = list(self._memory.table.read(record.row, 0, len(record.handles)))
            self._tell("row of the publisher", record.handles[:], row)

    def evict(self, need: Mapping[str, int]) -> None:
        self.cache.evict(need)
        self.model.evict([need.get(pool, 0) for pool in self._pools])

    def flush(self) -> None:
        self.cache.flush()
        self.model.evict([self.model.counts(pool)[0] for pool in range(len(self._pools))])

    def compare(self, deed: str, neighbour: Neighbour) -> None:
        """Every page, every count and what is free, against the model's; nobody owns a private page now.

        Of pages and free units only those are told that differ.
        """
        page_size = self.model.page_size
        expected = {
            name: PageFact(
                page.index * page_size,
                tuple(page.units),
                tuple(map(bool, page.units)),
                tuple(page.locks),
                page.ends_run,
            )
            for name, page in self.model.pages.items()
        }
        found = dict(self._facts())
        names = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        self._tell(f"pages after {deed}", *[[facts.get(name) for name in names] for facts in (expected, found)])
        for index, pool in enumerate(self._pools):
            tree = self.cache.tree
            counts = (tree.evictable[index], tree.protected[index])
            self._tell(f"{pool}: evictable and protected after {deed}", self.model.counts(index), counts)
            ledger = self._memory.ledgers.ledgers[index]
            held = {*neighbour.held(pool), *[page.units[index] for page in self.model.pages.values()]}
            free = Counter(unit for unit in range(1, ledger.capacity + 1) if unit not in held)
            there = Counter(ledger.free_units)
            self._tell(
                f"{pool}: free after {deed}", *[sorted(rest.elements()) for rest in (free - there, there - free)]
            )

    def _facts(self) -> Iterator[tuple[int, PageFact]]:
        """Every page of the tree, under the name that the model has for it."""
        size, ledgers = self._memory.page_size, self._memory.ledgers
        stack: list[tuple[Node, int]] = [(root, namespace_tag(space)) for space, root in self.cache.tree.roots.items()]
        while stack:
            node, tag = stack.pop()
            names = list(accumulate(node.key, next_tag, initial=tag))[size::size]
            units = zip(*[ledgers.pages_of(pool, node.handles) for pool in self._pools], strict=True)
            live, locks = tuple(node.live), tuple(node.locks)
            for index, (name, page) in enumerate(zip(names, units, strict=True)):
                yield name, PageFact(node.start + index * size, page, live, locks, name == names[-1])
            stack += [(child, names[-1] if names else tag) for child in node.children.values()]

    def _tell(self, what: str, expected: object, found: object) -> None:
        self.told.append(Modelled(what, expected, found))
