"""Mutations that do not change the correctness of the engine, each with the reason."""

from dataclasses import dataclass

from tests.quality.mutation.mutation import Mutation


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A change after which the engine is still correct; `changed` are the removed and the added lines."""

    why: str
    place: str
    changed: tuple[str, ...]


EQUIVALENTS: tuple[Equivalent, ...] = (
    Equivalent(
        why="A lock splits the tree at the top of its range, so a walk upward always reaches exactly that position.",
        place="engine_under_test/cache/locks.py LockReceipt.segment",
        changed=("- if reached > top:", "+ if reached != top:"),
    ),
    Equivalent(
        why="The name of each follower pool sorts after the name of the anchor pool.",
        place="engine_under_test/pools/paired.py PairedLedgers.pages_of",
        changed=("- if pool == self.anchor.name:", "+ if pool <= self.anchor.name:"),
    ),
    Equivalent(
        why="Receipts have different ids, so two receipts are equal only if they are the same object.",
        place="engine_under_test/cache/locks.py LockReceipt",
        changed=("- @dataclass(frozen=True, slots=True, eq=False)", "+ @dataclass(frozen=True, slots=True, eq=True)"),
    ),
    Equivalent(
        why="A row is written from its first page on, and a write at the end of the array extends it.",
        place="engine_under_test/pools/memory.py RequestTable.__init__",
        changed=(
            '- self._handles = array("q", [0]) * (width * (rows.capacity + 1))',
            '+ self._handles = array("q", [0]) * (width * (rows.capacity + 0))',
        ),
    ),
    Equivalent(
        why="Launch numbers begin with 1, so neither value makes the free wait for a launch.",
        place="engine_under_test/pools/paired.py PairedLedgers.free",
        changed=(
            "- self, handles: Sequence[int], *, owner: Owner, cause: str, after: int = 0, lacks: Collection[str] = ()",
            "+ self, handles: Sequence[int], *, owner: Owner, cause: str, after: int = -1, lacks: Collection[str] = ()",
        ),
    ),
    Equivalent(
        why="Launch numbers begin with 1, so neither value makes the free wait for a launch.",
        place="engine_under_test/pools/paired.py PairedLedgers.free_alone",
        changed=(
            "- def free_alone(self, pool: str, handles: Sequence[int], *, owner: Owner, cause: str, after: int = 0) "
            "-> list[int]:",
            "+ def free_alone(self, pool: str, handles: Sequence[int], *, owner: Owner, cause: str, after: int = -1) "
            "-> list[int]:",
        ),
    ),
    Equivalent(
        why="The moment at which stale entries are removed affects only time and memory.",
        place="engine_under_test/cache/lru.py LruQueue.push",
        changed=("- if len(self._heap) > self._compact_at:", "+ if len(self._heap) <= self._compact_at:"),
    ),
    Equivalent(
        why="The moment at which stale entries are removed affects only time and memory.",
        place="engine_under_test/cache/lru.py the module",
        changed=(
            "- COMPACT_AT = 32  # entries; a longer queue is searched for stale entries",
            "+ COMPACT_AT = 31  # entries; a longer queue is searched for stale entries",
        ),
    ),
    Equivalent(
        why="The moment at which stale entries are removed affects only time and memory.",
        place="engine_under_test/cache/lru.py LruQueue._compact",
        changed=(
            "- self._compact_at = max(COMPACT_AT, 4 * len(self._heap))",
            "+ self._compact_at = max(COMPACT_AT, 4 ^ len(self._heap))",
        ),
    ),
    Equivalent(
        why="The end of a node never changes and its last use only grows, so no entry is ahead of its node.",
        place="engine_under_test/cache/lru.py LruQueue.pop",
        changed=(
            "- if (last_used, end) == (node.last_used, node.end) and self._is_candidate(node):",
            "+ if (last_used, end) >= (node.last_used, node.end) and self._is_candidate(node):",
        ),
    ),
    Equivalent(
        why="A new node is touched, or copies the last use of the node it is split from, before last_used is read.",
        place="engine_under_test/cache/node.py Node",
        changed=("- last_used: int = 0", "+ last_used: int = 1"),
    ),
    Equivalent(
        why="A lock covers no token of a root, and the lock count of a root is never read.",
        place="engine_under_test/cache/tree.py RadixTree._root_node",
        changed=(
            "- return Node(number, namespace, None, 0, [], [], [True] * width, [0] * width, nothing)",
            "+ return Node(number, namespace, None, 0, [], [], [True] * width, [ 1] * width, nothing)",
        ),
    ),
    Equivalent(
        why="Rows are read from their first page on.",
        place="engine_under_test/pools/memory.py RequestTable.read",
        changed=(
            "- return self._handles[row * self.width + first : row * self.width + end]",
            "+ return self._handles[row * self.width ^ first : row * self.width + end]",
        ),
    ),
    Equivalent(
        why="An ordered queue that is marked as unordered is sorted again, with the same result.",
        place="engine_under_test/scheduler/queues.py WaitingQueue.add",
        changed=(
            "- self._in_order = not self._requests or (self._in_order and request.id > next(reversed(self._requests)))",
            "+ self._in_order = not self._requests or "
            "(self._in_order and request.id == next(reversed(self._requests)))",
        ),
    ),
    Equivalent(
        why="Requests only leave here, and CPython has one object for each small number.",
        place="engine_under_test/scheduler/scheduler.py Scheduler._free_decode_pages",
        changed=("- if len(self.active) < num_active:", "+ if len(self.active) is not num_active:"),
    ),
    Equivalent(
        why="The moment at which stale entries are removed affects only time and memory.",
        place="engine_under_test/cache/lru.py LruQueue._compact",
        changed=(
            "- self._compact_at = max(COMPACT_AT, 4 * len(self._heap))",
            "+ self._compact_at = max(COMPACT_AT, 3 * len(self._heap))",
        ),
    ),
    Equivalent(
        why="The moment at which stale entries are removed affects only time and memory.",
        place="engine_under_test/cache/lru.py LruQueue._compact",
        changed=(
            "- self._compact_at = max(COMPACT_AT, 4 * len(self._heap))",
            "+ self._compact_at = max(COMPACT_AT, 4 | len(self._heap))",
        ),
    ),
    Equivalent(
        why="No forward uses the slot before the first token.",
        place="engine_under_test/scheduler/batch.py state_slots",
        changed=(
            "- return StateSlots(slot(start - 1) if start else 0, [*kept], [*kept.values()])",
            "+ return StateSlots(slot(start - 1) if start else -1, [*kept], [*kept.values()])",
        ),
    ),
    Equivalent(
        why="An empty range holds no position; its border is a page border, at which a node may be split.",
        place="engine_under_test/cache/record.py KVRecord.skip",
        changed=("- if index > before + 1:", "+ if index > before + 0:"),
    ),
    Equivalent(
        why="A node that ends where the range begins has no page in it.",
        place="engine_under_test/cache/match.py pages_between",
        changed=("- if node.end <= top:", "+ if node.end < top:"),
    ),
    Equivalent(
        why="A node without a page in the range adds nothing to the sums of pages.",
        place="engine_under_test/cache/match.py pages_between",
        changed=("- if begin < stop:", "+ if begin <= stop:"),
    ),
    Equivalent(
        why="A dead span is cut once more at most, and a node may end at any page border.",
        place="engine_under_test/cache/tree.py RadixTree._extend",
        changed=(
            "- first_live = next((begin for begin in own[:-1] if not overlap(spans, begin, begin + 1)), end)",
            "+ first_live = next((begin for begin in own[:-1] if not overlap(spans, begin, begin / 1)), end)",
        ),
    ),
    Equivalent(
        why="Pinned memory makes copies of a GPU asynchronous, and changes no content.",
        place="engine_under_test/pools/memory.py HostMemory.for_config",
        changed=(
            '- is_pinned=any(layout.device.type == "cuda" for layout in layouts.values()),',
            '+ is_pinned=any(layout.device.type > "cuda" for layout in layouts.values()),',
        ),
    ),
    Equivalent(
        why="`own` names every pool and the rows.",
        place="engine_under_test/scheduler/preempt.py Yield.of",
        changed=(
            "- return self.own.get(pool, 0) + self.growth.get(pool, 0)",
            "+ return self.own.get(pool, 1) + self.growth.get(pool, 0)",
        ),
    ),
    Equivalent(
        why="Only the rows have no growth; a request lacks one row at most, and each victim has one.",
        place="engine_under_test/scheduler/preempt.py Yield.of",
        changed=(
            "- return self.own.get(pool, 0) + self.growth.get(pool, 0)",
            "+ return self.own.get(pool, 0) + self.growth.get(pool, 1)",
        ),
    ),
    Equivalent(
        why="The factors are still odd; the first 2^20 differ.",
        place="engine_under_test/pools/checksums.py _factors",
        changed=("- return ((mixed ^ (mixed >> 27)) * MIX[1]) | 1", "+ return ((mixed ^ (mixed >> 27)) ^ MIX[1]) | 1"),
    ),
    Equivalent(
        why="The factors are still odd; the first 2^20 differ.",
        place="engine_under_test/pools/checksums.py _factors",
        changed=("- return ((mixed ^ (mixed >> 27)) * MIX[1]) | 1", "+ return ((mixed - (mixed >> 27)) * MIX[1]) | 1"),
    ),
    Equivalent(
        why="The last computed position always has a page, so its state is kept anyway.",
        place="engine_under_test/scheduler/batch.py state_slots",
        changed=(
            "- kept = {position: place for position, place in slots.items() if place or position >= entry.end - 1}",
            "+ kept = {position: place for position, place in slots.items() if place or position > entry.end - 1}",
        ),
    ),
    Equivalent(
        why="The last computed position always has a page, so its state is kept anyway.",
        place="engine_under_test/scheduler/batch.py state_slots",
        changed=(
            "- kept = {position: place for position, place in slots.items() if place or position >= entry.end - 1}",
            "+ kept = {position: place for position, place in slots.items() if place or position >= entry.end / 1}",
        ),
    ),
    Equivalent(
        why="Nodes are equal only if they are the same object.",
        place="engine_under_test/cache/evict.py _remove",
        changed=(
            "- if node is not leaf and (all(node.live) or node.has_copy):",
            "+ if node != leaf and (all(node.live) or node.has_copy):",
        ),
    ),
    Equivalent(
        why="An eviction that needs no page frees none.",
        place="engine_under_test/cache/prefix_cache.py PrefixCache.evict",
        changed=("- if not any(count > 0 for count in wanted):", "+ if not any(count >= 0 for count in wanted):"),
    ),
    Equivalent(
        why="The first number is that of a root, and the number of a root is never read.",
        place="engine_under_test/cache/tree.py RadixTree.__init__",
        changed=("- self._num_nodes = 0", "+ self._num_nodes = -1"),
    ),
    Equivalent(
        why="A draft may be cut anywhere: the output does not depend on it.",
        place="engine_under_test/scheduler/speculation.py Speculation._known",
        changed=(
            "- return takewhile(lambda token: token >= 0 and (size is None or token < size), drafts)",
            "+ return takewhile(lambda token: token > 0 and (size is None or token < size), drafts)",
        ),
    ),
    Equivalent(
        why="A node that is offered once more has one more entry in the queue.",
        place="engine_under_test/cache/tree.py RadixTree.__init__",
        changed=(
            "- self._longest_tail = max((part.tail_len for part in components if part.leaves_tombstones), default=0)",
            "+ self._longest_tail = max((part.tail_len for part in components if part.leaves_tombstones), default= 1)",
        ),
    ),
    Equivalent(
        why="Ledgers are equal only if they are the same object.",
        place="engine_under_test/pools/paired.py PairedLedgers.join",
        changed=("- if ledger is not self.anchor:", "+ if ledger != self.anchor:"),
    ),
    Equivalent(
        why="The nodes above the range have no page in it.",
        place="engine_under_test/cache/match.py pages_between",
        changed=("- break", "+ continue"),
    ),
    Equivalent(
        why="Completed passes are never compared.",
        place="engine_under_test/scheduler/pipeline.py CompletedPass",
        changed=("- @dataclass(frozen=True, slots=True, eq=False)", "+ @dataclass(frozen=True, slots=True, eq=True)"),
    ),
    Equivalent(
        why="The names of the pools are literals of one module, so equal names are the same object.",
        place="engine_under_test/pools/paired.py PairedLedgers.free_alone",
        changed=("- if pool == self.anchor.name:", "+ if pool is self.anchor.name:"),
    ),
)


def why_equivalent(mutation: Mutation) -> str | None:
    """The reason for which a mutation is equivalent, or None; line numbers are ignored."""
    place = f"{mutation.path} {mutation.place}"
    return next((known.why for known in EQUIVALENTS if (known.place, known.changed) == (place, mutation.changed)), None)
