"""Mutations that do not change the correctness of the engine, each with the reason."""

from dataclasses import dataclass

from harness.mutants.generic.mutation import Mutation


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
        changed=(
            "- if reached > top:",
            "+ if reached != top:",
        ),
    ),
    Equivalent(
        why="The name of each follower pool sorts after the name of the anchor pool.",
        place="engine_under_test/pools/paired.py PairedLedgers.pages_of",
        changed=(
            "- if pool == self.anchor.name:",
            "+ if pool <= self.anchor.name:",
        ),
    ),
    Equivalent(
        why="Receipts have different ids, so two receipts are equal only if they are the same object.",
        place="engine_under_test/cache/locks.py LockReceipt",
        changed=(
            "- @dataclass(frozen=True, slots=True, eq=False)",
            "+ @dataclass(frozen=True, slots=True, eq=True)",
        ),
    ),
    Equivalent(
        why="A row is written from its first page on, and a write at the end of the array extends it.",
        place="engine_under_test/pools/request_table.py RequestTable.__init__",
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
        changed=(
            "- if len(self._heap) > self._compact_at:",
            "+ if len(self._heap) <= self._compact_at:",
        ),
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
        changed=(
            "- last_used: int = 0",
            "+ last_used: int = 1",
        ),
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
        place="engine_under_test/pools/request_table.py RequestTable.read",
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
)


def why_equivalent(mutation: Mutation) -> str | None:
    """The reason for which a mutation is equivalent, or None; line numbers are ignored."""
    place = f"{mutation.path} {mutation.place}"
    return next((one.why for one in EQUIVALENTS if (one.place, one.changed) == (place, mutation.changed)), None)
