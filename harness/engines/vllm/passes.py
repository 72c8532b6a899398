"""The passes that a scheduler launches."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from harness.engines.vllm.connector import Load


class Columns(NamedTuple):
    """Places in the state tables of a request: the state before a pass (-1: none), and those that the pass writes."""

    source: int = -1
    first: int = 0
    last: int = -1


class Entry(NamedTuple):
    """A request of a pass: positions [start, end), and the block table of each group when it was scheduled.

    The last positions are those of the `drafts`; a draft of -1 is a placeholder.
    """

    request: int
    start: int
    end: int
    tables: Sequence[Sequence[int]]
    drafts: Sequence[int] = ()
    columns: Columns = Columns()

    @property
    def ids(self) -> tuple[int, int, int]:
        return self.request, self.start, self.end - len(self.drafts)

    def block(self, group: int, index: int) -> int:
        """The block at an index of a table; 0, the null block, where it has none."""
        table = self.tables[group]
        return table[index] if 0 <= index < len(table) else 0


class Pass:
    """A launched pass, or a call that computes nothing, with the number of the launch before it.

    `known` has the tokens of the requests for which the scheduler says them again.  Blocks in `zeroed` are cleared
    first.
    """

    def __init__(
        self, launch: int, entries: Sequence[Entry], known: Mapping[int, Sequence[int]], zeroed: Sequence[int]
    ) -> None:
        self.launch, self.entries, self.known, self.zeroed = launch, entries, known, zeroed
        self.loads: list[Load] = []  # before the pass computes
        self.output: Any = None
