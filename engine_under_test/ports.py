"""The ports: what the engine needs from outside, and the one that listens.

Behind Forward stands a GPU, behind Clock the time of day.  The observer is absent by default and
decides nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from engine_under_test.errors import EngineError
from engine_under_test.events import Event


class Observer(Protocol):
    """Listens to everything that happens; called in order, returns nothing, changes nothing."""

    def notice(self, event: Event) -> None: ...


class Clock(Protocol):
    """Milliseconds since some fixed point; never goes back."""

    def now_ms(self) -> int: ...


class Backing(Protocol):
    """The memory behind the pages; where it is mapped on demand it can be short though pages are free."""

    def allows(self, pool: str, count: int) -> bool:
        """Is there memory for `count` more pages of `pool`?  Asked before each take in each pool."""


class ForwardEntry(NamedTuple):
    """One request's part of a forward pass: compute `tokens` at positions [start, end).

    A request whose entry `samples` gets a next token; an unfinished chunk does not.  Where `follows`
    is a launch, the last of the tokens is not in `tokens`: it is the one that this launch samples.
    """

    request_id: int
    namespace: int
    tokens: list[int]
    start: int
    end: int
    samples: bool
    follows: int = 0


class PageSpan(NamedTuple):
    """Which part of `PoolPages.pages` is one entry's: its first position, then [begin, begin + num_pages)."""

    first_position: int
    begin: int
    num_pages: int


@dataclass(frozen=True, slots=True)
class PoolPages:
    """Where the layers of one pool read and write in one forward pass.

    `kv` is (pages + 1, page_size, …) with the padding page first; `pages` is (N,) int64, each
    entry's pages in order of position, from the page of the first position its window sees.
    """

    name: str
    window: int | None
    kv: torch.Tensor
    pages: torch.Tensor
    spans: list[PageSpan]


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One forward pass: prefill chunks and decodes alike are entries that compute [start, end)."""

    launch: int
    page_size: int
    entries: list[ForwardEntry]
    pools: list[PoolPages]


class ForwardFailed(EngineError):
    """A forward pass that came to nothing; what it should have written is undefined."""


class Forward(Protocol):
    """Runs batches in the order of their launches, and is asked for their results in that order."""

    def launch(self, batch: ForwardBatch) -> None:
        """Start a pass; what it reads and writes stays in use until it is collected."""

    def collect(self, launch: int) -> list[int | None] | None:
        """The next token of each entry, in order, None where the entry does not sample; None while it runs.

        Raises ForwardFailed, once, for a pass that came to nothing.
        """
