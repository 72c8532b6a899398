"""The ports: what the engine needs from outside, and the one that listens.

Behind Forward and HostStore stands a GPU, behind Clock the time of day.  The observer is absent by default and
decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import NamedTuple, Protocol

import torch

from engine_under_test.clock import MonotonicClock
from engine_under_test.config import PoolSpec as PoolSpec  # whoever stands behind a port needs it
from engine_under_test.errors import EngineError
from engine_under_test.events import Event
from engine_under_test.messages import Message as Message  # whoever stands behind the link needs it
from engine_under_test.sampling import GREEDY, SamplingParams


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


class SlotLayout(NamedTuple):
    """What the slots of one pool hold: its storage is (*outer, pages + 1, page_size, *inner) of `dtype` on `device`."""

    dtype: torch.dtype
    outer: tuple[int, ...] = ()
    inner: tuple[int, ...] = ()
    device: torch.device = torch.device("cpu")

    @property
    def page_dim(self) -> int:
        """Which dimension of the storage counts its pages."""
        return len(self.outer)

    @property
    def rubbish(self) -> float:
        """What shows in every result that it reaches: NaN, or -1 in whole numbers, of which none is negative."""
        return nan if self.dtype.is_floating_point else -1


class ForwardEntry(NamedTuple):
    """One request's part of a forward pass: compute `tokens` at positions [start, end).

    Behind each of the last `num_samples` positions a next token is chosen by `sampling`: behind none of an unfinished
    chunk, behind the last known token otherwise, and behind each draft that comes after that one.  Where `follows` is a
    launch, the last of the tokens is not in `tokens`: it is the one that this launch samples.
    """

    request_id: int
    namespace: int
    tokens: list[int]
    start: int
    end: int
    num_samples: int
    follows: int = 0
    sampling: SamplingParams = GREEDY


class PageSpan(NamedTuple):
    """Which part of `PoolPages.pages` is one entry's: its first position, then [begin, begin + num_pages)."""

    first_position: int
    begin: int
    num_pages: int


@dataclass(frozen=True, slots=True)
class PoolPages:
    """Where the layers of one pool read and write in one forward pass.

    `kv` is the pool's storage, (…, pages + 1, page_size, …) with the padding page first and around it what the
    model asks for; `pages` is (N,) int64, each entry's pages in order of position, from the page of the first
    position its window sees.
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


class LogitsSpan(NamedTuple):
    """The logits at positions [start, start + n), each of the token that comes next: (n, vocabulary)."""

    start: int
    values: torch.Tensor


class Computed(NamedTuple):
    """What a pass has for one entry: a token for each of its samples, in order; its logits, where asked for."""

    tokens: Sequence[int] = ()
    logits: LogitsSpan | None = None


class PageCopy(NamedTuple):
    """Pages of one pool to be copied, index by index, from one storage to another of the same layout.

    `page_dim` is the dimension of both that counts pages.
    """

    source: torch.Tensor
    source_pages: Sequence[int]
    target: torch.Tensor
    target_pages: Sequence[int]
    page_dim: int


class Acknowledgement(NamedTuple):
    """A transfer has ended: all is where it should be, or it came to nothing and what it wrote is undefined."""

    transfer: int
    failure: str | None = None


class HostStore(Protocol):
    """Copies pages between the device and the host, several transfers at a time, in any order."""

    def begin(self, transfer: int, copies: Sequence[PageCopy]) -> None:
        """Start to copy; what is read and written stays in use until the transfer is acknowledged."""

    def acknowledged(self) -> list[Acknowledgement]:
        """The transfers that have ended since this was asked last."""

    def wait(self) -> None:
        """Come back when everything that was begun has ended, or when that takes too long."""


class ForwardFailed(EngineError):
    """A forward pass that came to nothing; what it should have written is undefined."""


class Forward(Protocol):
    """Runs batches in the order of their launches, and is asked for their results in that order."""

    @property
    def vocab_size(self) -> int | None:
        """Token ids are below it; None where any number is one."""

    def layout(self, pool: PoolSpec) -> SlotLayout:
        """What the layers that read and write `pool` keep in its slots."""

    def launch(self, batch: ForwardBatch) -> None:
        """Start a pass; what it reads and writes stays in use until it is collected."""

    def collect(self, launch: int) -> list[Computed] | None:
        """What came of each entry, in order; None while the pass runs.

        Raises ForwardFailed, once, for a pass that came to nothing.
        """


class Wanted(NamedTuple):
    """A guess is wanted of how a request goes on behind its `tokens`: at most `most` more."""

    request_id: int
    namespace: int
    tokens: Sequence[int]
    most: int


class Proposer(Protocol):
    """Guesses what a model will say; a guess that is wrong costs time, and nothing else.

    What it is told are the engine's own lists, which it leaves as they are.
    """

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        """The draft tokens of each, in order: fewer than wanted, or none, where nobody knows."""

    def forget(self, request_id: int) -> None:
        """The request has ended, or was rejected before anything was wanted of it; nothing more will be."""


class Link(Protocol):
    """Carries messages between a prefill engine and a decode engine.

    A message may be lost, delayed, reordered or duplicated, but it is never changed.
    """

    def send(self, message: Message) -> None:
        """Send a message without blocking."""

    def receive(self) -> list[Message]:
        """The messages that arrived since the last call."""

    @property
    def is_clear(self) -> bool:
        """Is the send buffer empty?  While it is not, retransmitting pages is useless."""


MACHINE_CLOCK = MonotonicClock()


@dataclass(frozen=True, slots=True)
class Ports:
    """What an engine is connected to; nobody listens and memory is never short unless somebody is given.

    An engine without a forward makes its own from a checkpoint, one without a host store copies by itself, one without
    a proposer looks its guesses up in what was said.  One that computes prompts alone, or decodes alone, needs a link.
    """

    forward: Forward | None = None
    clock: Clock = MACHINE_CLOCK
    observer: Observer | None = None
    backing: Backing | None = None
    host: HostStore | None = None
    proposer: Proposer | None = None
    link: Link | None = None
