"""A prefix cache and a naive model; both perform the same operations."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from swarden.engine_under_test.cache.match import Match
from swarden.engine_under_test.cache.node import Node
from swarden.engine_under_test.cache.prefix_cache import PrefixCache
from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.pools.memory import KVMemory
from swarden.engine_under_test.ports import Observer
from swarden.harness.components.neighbour import Neighbour
from swarden.harness.components.tree.model import Hold, TreeModel
from swarden.invariants.events import Modelled
from swarden.invariants.reference import namespace_tag, next_tag


class ComparedMatch(NamedTuple):
    """The match of the cache, and the page names of the model's match."""

    match: Match
    names: list[int]


@dataclass(slots=True)
class LockHolder:
    """A holder of a lock: its record, and the lock of the model."""

    record: KVRecord
    hold: Hold


class PageFact(NamedTuple):
    """One cached page: its first position, its unit, state and locks in each pool, and whether it ends a node."""

    start: int
    units: tuple[int, ...]
    live: tuple[bool, ...]
    locks: tuple[int, ...]
    ends_node: bool


class ModelledCache:
    """A PrefixCache; `comparisons` are the results that the model expects and those of the cache."""

    def __init__(self, config: EngineConfig, memory: KVMemory, observer: Observer) -> None:
        self.cache = PrefixCache(memory, sharing=config.prefix_sharing, observer=observer)
        self.model = TreeModel(config)
        self.comparisons: list[NamedTuple] = []
        self._memory = memory
        self._sharing = config.prefix_sharing
        self._pools = [pool.name for pool in memory.pools]

    def match(self, tokens: Sequence[int], namespace: int) -> ComparedMatch:
        match = self.cache.match(tokens, namespace)
        names = self.model.match(self.model.names(namespace, tokens[:-1]))
        expected = (len(names) * self._memory.page_size, self.model.shown(names))
        self._record_comparison("match", expected, (match.length, match.handles[:]))
        return ComparedMatch(match, names)

    def pages_to_lock(self, found: ComparedMatch) -> dict[str, int]:
        wanted = self.cache.pages_to_lock(found.match)
        self._record_comparison(
            "pages to lock", dict(zip(self._pools, self.model.pages_to_lock(found.names), strict=True)), wanted
        )
        return wanted

    def lock(self, found: ComparedMatch, record: KVRecord) -> LockHolder:
        """Lock the matched pages in the model; the reader has the receipt of `record`."""
        self.model.use(found.names)
        return LockHolder(record, self.model.lock(found.names))

    def unlock(self, reader: LockHolder) -> None:
        self.cache.unlock(reader.record.receipt)
        self.model.unlock(reader.hold)

    def slide(self, reader: LockHolder, frontiers: Mapping[str, int]) -> bool:
        """Release the locks below the frontier of every windowed pool; False if the receipt covered no page there."""
        before = reader.record.receipt
        reader.record.receipt = self.cache.slide(before, frontiers)
        reader.hold = self.model.slide(reader.hold, max(frontiers.values(), default=0) // self._memory.page_size)
        return reader.record.receipt is not before

    def first_windowed(self, reader: LockHolder) -> int | None:
        """The index of the first page that a reader has locked in a windowed pool; None if there is none."""
        return next(
            (
                start
                for start, tail in zip(reader.hold.starts, self.model.tails, strict=True)
                if tail is not None and start < len(reader.hold.names)
            ),
            None,
        )

    def publish(self, reader: LockHolder, tokens: Sequence[int], namespace: int) -> None:
        """Publish all whole pages of `tokens`."""
        record, size, ledgers = reader.record, self._memory.page_size, self._memory.ledgers
        names = self.model.names(namespace, tokens)
        incoming = list(zip(*[ledgers.pages_of(pool, record.handles) for pool in self._pools], strict=True))
        protected, absent = record.protected_len // size, record.absent
        spans = [absent.get(pool, ()) for pool in self._pools]
        borders = [{border // size for span in of_pool for border in (span.start, span.stop)} for of_pool in spans]
        self.cache.publish(record, tokens, namespace=namespace, end=len(tokens))
        if self._sharing and len(names) > protected:
            self.model.insert(names, incoming[: len(names)], protected=protected, borders=borders)
            before, reader.hold = reader.hold, self.model.lock(names)
            self.model.unlock(before)
            self._record_comparison("handles of the publisher", self.model.shown(names), record.handles[: len(names)])
            row = list(self._memory.table.read(record.row, 0, len(record.handles)))
            self._record_comparison("row of the publisher", record.handles[:], row)

    def evict(self, need: Mapping[str, int]) -> None:
        self.cache.evict(need)
        self.model.evict([need.get(pool, 0) for pool in self._pools])

    def flush(self) -> None:
        self.cache.flush()
        self.model.evict([self.model.counts(pool)[0] for pool in range(len(self._pools))])

    def compare(self, op_name: str, neighbour: Neighbour) -> None:
        """Compare every page, every counter and the free units with the model. No request owns a private page now.

        For pages and free units, only the differences are recorded.
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
        self._record_comparison(
            f"pages after {op_name}", *[[facts.get(name) for name in names] for facts in (expected, found)]
        )
        for index, pool in enumerate(self._pools):
            tree = self.cache.tree
            counts = (tree.evictable[index], tree.protected[index])
            self._record_comparison(
                f"{pool}: evictable and protected after {op_name}", self.model.counts(index), counts
            )
            ledger = self._memory.ledgers.ledgers[index]
            held = {*neighbour.held(pool), *[page.units[index] for page in self.model.pages.values()]}
            free = Counter(unit for unit in range(1, ledger.capacity + 1) if unit not in held)
            found_free = Counter(ledger.free_units)
            self._record_comparison(
                f"{pool}: free after {op_name}",
                *[sorted(rest.elements()) for rest in (free - found_free, found_free - free)],
            )

    def _facts(self) -> Iterator[tuple[int, PageFact]]:
        """Every page of the tree, with its name in the model."""
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

    def _record_comparison(self, subject: str, expected: object, found: object) -> None:
        self.comparisons.append(Modelled(subject, expected, found))
