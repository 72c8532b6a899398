"""The mutations of samples that change nothing that matters, each with the reason."""

from dataclasses import dataclass

from harness.mutation.mutation import Mutation


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Changes after which the engine is as right as before; `changed` are the lines that went and came."""

    why: str
    place: str
    changed: tuple[str, ...]


EQUIVALENTS: tuple[Equivalent, ...] = (
    Equivalent(
        why="A count of locks is never negative: a release below zero raises.",
        place="engine_under_test/cache/tree.py RadixTree._recover",
        changed=(
            "- locked = self.windowed != 0 and node.locks[0] > 0",
            "+ locked = self.windowed != 0 and node.locks[0] != 0",
        ),
    ),
    Equivalent(
        why="The end of a slice may lie behind the end of the list.",
        place="engine_under_test/cache/record.py KVRecord.private_handles",
        changed=(
            "- first, end = self.protected_len // page_size, align_up(self.allocated_len, page_size) // page_size",
            "+ first, end = self.protected_len // page_size, align_up(self.allocated_len, page_size) | page_size",
        ),
    ),
    Equivalent(
        why="A lock cuts the tree at its top, so a walk upward meets it and never passes it.",
        place="engine_under_test/cache/locks.py LockReceipt.segment",
        changed=(
            "- if reached > top:",
            "+ if reached != top:",
        ),
    ),
    Equivalent(
        why="A follower's name sorts behind the anchor's; there is no other pair of pools.",
        place="engine_under_test/pools/paired.py PairedLedgers.pages_of",
        changed=(
            "- if pool == self.anchor.name:",
            "+ if pool <= self.anchor.name:",
        ),
    ),
    Equivalent(
        why="Receipts are compared by identity alone, and their ids differ.",
        place="engine_under_test/cache/locks.py LockReceipt",
        changed=(
            "- @dataclass(frozen=True, slots=True, eq=False)",
            "+ @dataclass(frozen=True, slots=True, eq=True)",
        ),
    ),
    Equivalent(
        why="A row is written from its first page on, and the array grows with the last one.",
        place="engine_under_test/pools/request_table.py RequestTable.__init__",
        changed=(
            '- self._handles = array("q", bytes(8 * width * (rows.capacity + 1)))',
            '+ self._handles = array("q", bytes(8 * width * (rows.capacity + 0)))',
        ),
    ),
    Equivalent(
        why="Launches are counted from 1, so none is waited for in either case.",
        place="engine_under_test/pools/paired.py PairedLedgers.free",
        changed=(
            "- def free(self, handles: Sequence[int], *, owner: Owner, cause: str, after: int = 0) -> None:",
            "+ def free(self, handles: Sequence[int], *, owner: Owner, cause: str, after: int = -1) -> None:",
        ),
    ),
)


def why_equivalent(mutation: Mutation) -> str | None:
    """The reason, where a mutation is known to change nothing that matters, wherever its lines stand now."""
    place = f"{mutation.path} {mutation.place}"
    return next((one.why for one in EQUIVALENTS if (one.place, one.changed) == (place, mutation.changed)), None)
