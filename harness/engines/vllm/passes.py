"""The passes that a scheduler launches."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from swarden.harness.engines.vllm.transfers import BlockLoad
from swarden.harness.kit.passes import Pass
from swarden.harness.kit.tags import VOCABULARY
from swarden.invariants.view import LaunchView

PLACEHOLDER = -1  # a draft that is not proposed yet
UNKNOWN = VOCABULARY  # a token that the scheduler has not sent to the runner, or a draft that was not proposed
REWOUND = -2  # the run of an entry whose request the scheduler takes back to a position before that of the pass


class Columns(NamedTuple):
    """Places in the state tables of a request: the state before a pass (-1: none), and those that the pass writes."""

    source: int = -1
    first: int = 0
    last: int = -1


class VllmEntry(NamedTuple):
    """A request of a pass: positions [start, end), and the block table of each group when it was scheduled.

    The last positions are those of the `drafts`.  The result is used while the request has the same `run`.
    """

    request: int
    start: int
    end: int
    tables: Sequence[Sequence[int]]
    drafts: Sequence[int] = ()
    columns: Columns = Columns()
    run: int = -1

    @property
    def ids(self) -> tuple[int, int, int]:
        return self.request, self.start, self.end - len(self.drafts)

    def block(self, group: int, index: int) -> int:
        """The block at an index of a table; 0, the null block, where it has none."""
        table = self.tables[group]
        return table[index] if 0 <= index < len(table) else 0

    def behind(self, num_rejected: int, drafts: Sequence[int]) -> "VllmEntry":
        """This entry when the pass before it has rejected so many drafts, with the drafts that were proposed since."""
        start, end = self.start - num_rejected, self.end - num_rejected
        return self._replace(start=start, end=end, drafts=drafts)


@dataclass(eq=False)
class VllmPass(Pass[VllmEntry]):
    """A launched pass, or a call that computes nothing, with the number of the launch before it.

    `rids` are the release's ids of the requests of its entries.  `known` has the tokens of the requests for which the
    scheduler says them again.  Requests in `admitted` begin or resume.  Entries of requests in `waiting` depend on the
    drafts of a pass that is not computed yet.  The worker makes the `copies` of blocks inside which requests go on, and
    of the null block, which is empty, to clear others; it moves the running states, and then writes the `loads`, which
    have none of those that `failed`.  Blocks in `loaded` are written within the step from CPU memory; the moves of
    states come before that.  Blocks in `unwritten` are of loads that failed, which the scheduler did not know when it
    launched the pass.  `lens` has the tokens of a request that count for the scheduler, those in flight included: after
    a failed load these are less than were sampled.
    """

    rids: Sequence[str] = ()
    known: Mapping[int, Sequence[int]] = field(default_factory=dict)
    admitted: Collection[int] = ()
    waiting: set[int] = field(default_factory=set)
    copies: Sequence[tuple[int, int]] = ()
    loads: list[BlockLoad] = field(default_factory=list)
    failed: list[BlockLoad] = field(default_factory=list)
    loaded: set[int] = field(default_factory=set)
    unwritten: set[int] = field(default_factory=set)
    lens: dict[int, int] = field(default_factory=dict)
    output: Any = None

    def view(self, *args: Any, **kwargs: Any) -> LaunchView:
        rewound = [entry.request for entry in self.entries if entry.run == REWOUND]
        return super().view(*args, **kwargs, are_delivered=True)._replace(rewound=rewound)

    def rewind(self, unwritten: Iterable[int]) -> None:
        """Results of entries that read blocks of a failed load are not used."""
        self.unwritten.update(unwritten)
        self.entries = [
            entry if self.unwritten.isdisjoint(chain.from_iterable(entry.tables)) else entry._replace(run=REWOUND)
            for entry in self.entries
        ]
