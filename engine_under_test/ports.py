"""The ports: interfaces of the engine to the GPU, the clock, the host memory, the network and an observer.

Forward and HostStore usually use a GPU.  The observer is optional and decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import NamedTuple, Protocol

import torch

from swarden.engine_under_test.clock import MonotonicClock
from swarden.engine_under_test.config import PoolSpec as PoolSpec  # for implementations of Forward
from swarden.engine_under_test.errors import EngineError
from swarden.engine_under_test.messages import Message as Message  # for implementations of Link
from swarden.engine_under_test.sampling import GREEDY, SamplingParams
from swarden.invariants.events import Event


class Observer(Protocol):
    """Receives all events of an engine in order; it changes nothing in the engine."""

    def notice(self, event: Event) -> None: ...


class Clock(Protocol):
    """Milliseconds since some fixed point; the time never decreases."""

    def now_ms(self) -> int: ...


class Backing(Protocol):
    """The memory behind the pages; if it is mapped on demand, it can be short although pages are free."""

    def allows(self, pool: str, count: int) -> bool:
        """Is there memory for `count` more pages of `pool`?  Called before each take that has enough free pages."""


class SlotLayout(NamedTuple):
    """The slots of one pool: its storage is (*outer, pages + 1, slots, *inner) of `dtype` on `device`.

    A slot has the KV of one token, in a pool of states one state of a request.
    """

    dtype: torch.dtype
    outer: tuple[int, ...] = ()
    inner: tuple[int, ...] = ()
    device: torch.device = torch.device("cpu")

    @property
    def page_dim(self) -> int:
        """The dimension of the storage that counts its pages."""
        return len(self.outer)

    @property
    def rubbish(self) -> float:
        """The poison value, which shows in every result: NaN, or -1 for integers, which are never negative."""
        return nan if self.dtype.is_floating_point else -1


class ForwardEntry(NamedTuple):
    """One request's part of a forward pass: compute `tokens` at positions [start, end).

    The pass samples a next token by `sampling` for each of the last `num_samples` positions.  `num_samples` is 0 if
    more of the prompt follows, or if the request wants no output; else it is 1, and 1 more for each draft at the end of
    `tokens`.  If `follows` is a launch (0: none), the last input token is not in `tokens`: that launch samples it.
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
    """The part [begin, begin + num_pages) of `PoolPages.pages` for one entry, and the first position in it."""

    first_position: int
    begin: int
    num_pages: int


class StateSlots(NamedTuple):
    """The slots of the states that recurrent layers read and store for one entry.

    The layers start from the state in slot `read`.  The state after each of `positions`, in ascending order, is stored
    in the slot of `slots` at the same place.
    A slot is page * slots of a page + place.  An entry that starts at 0 starts from the initial state, and `read` is 0.
    """

    read: int
    positions: Sequence[int]
    slots: Sequence[int]


@dataclass(frozen=True, slots=True)
class PoolPages:
    """The pages that the layers of one pool read and write in one forward pass.

    `kv` is the pool's storage, (…, pages + 1, slots, …) with the padding page first; the model chooses the other
    dimensions.  `pages` is (N,) int64, each entry's pages in order of position, from the page of the first position in
    its window.  In a pool of recurrent states a page may be missing (0), and `states` has an item for each entry; all
    slots are read before any is written.  In a pool of KV `states` is empty.
    """

    name: str
    window: int | None
    kv: torch.Tensor
    pages: torch.Tensor
    spans: list[PageSpan]
    states: Sequence[StateSlots] = ()
    num_slots: int = 0  # states of a page; 0 in a pool of KV


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One forward pass: prefill chunks and decodes alike are entries that compute [start, end)."""

    launch: int
    page_size: int
    entries: list[ForwardEntry]
    pools: list[PoolPages]


class LogitsSpan(NamedTuple):
    """The logits (n, vocabulary) at positions [start, start + n); each row is for the next token."""

    start: int
    values: torch.Tensor


class Computed(NamedTuple):
    """The result of a pass for one entry: a token for each of its samples, in order; its logits, if requested."""

    tokens: Sequence[int] = ()
    logits: LogitsSpan | None = None


class PageCopy(NamedTuple):
    """Pages of a pool to copy, index by index, between equal storages, whose dimension `page_dim` counts pages."""

    source: torch.Tensor
    source_pages: Sequence[int]
    target: torch.Tensor
    target_pages: Sequence[int]
    page_dim: int


class Acknowledgement(NamedTuple):
    """A copy job has ended; if it has a `failure`, the content of the pages that it wrote is undefined."""

    job: int
    failure: str | None = None


class HostStore(Protocol):
    """Copies pages between the device and the host, several jobs at a time, in any order."""

    def begin(self, job: int, copies: Sequence[PageCopy]) -> None:
        """Start to copy; the pages stay in use until the job is acknowledged."""

    def acknowledged(self) -> list[Acknowledgement]:
        """The jobs that have ended since the last call."""

    def wait(self) -> None:
        """Return when all begun jobs have ended, or after a time limit."""


class ForwardFailed(EngineError):
    """The forward pass failed; the content of the pages that it writes is undefined."""


class Forward(Protocol):
    """Runs batches in the order of their launches; the engine collects the results in the same order."""

    @property
    def model(self) -> str:
        """The architecture with a digest of it and of the weights; a prefill and a decode engine compare it."""

    @property
    def vocab_size(self) -> int | None:
        """The limit of token ids, exclusive; None if there is no limit."""

    def layout(self, pool: PoolSpec) -> SlotLayout:
        """The slot layout that the layers of `pool` need."""

    def launch(self, batch: ForwardBatch) -> None:
        """Start a pass; the pages that it reads and writes stay in use until it is collected."""

    def collect(self, launch: int) -> list[Computed] | None:
        """The result of each entry, in order; None while the pass runs.  Raises ForwardFailed once if it failed."""


class Wanted(NamedTuple):
    """A request that needs at most `most` draft tokens after its `tokens`."""

    request_id: int
    namespace: int
    tokens: Sequence[int]
    most: int


class Proposer(Protocol):
    """Proposes draft tokens; a wrong draft only costs time.  It must not change its arguments, lists of the engine."""

    def propose(self, wanted: Sequence[Wanted]) -> list[list[int]]:
        """The draft tokens of each request, in order; a list may be shorter than `most`, or empty."""

    def forget(self, request_id: int) -> None:
        """Forget a request that has ended or was rejected; `propose` is never called for it again."""


class Link(Protocol):
    """Carries messages between a prefill engine and a decode engine.

    A message may be lost, delayed, reordered or duplicated, but it is never changed, and it is from the peer.
    """

    def send(self, message: Message) -> None:
        """Send a message without blocking."""

    def receive(self) -> list[Message]:
        """The messages that arrived since the last call."""

    def reject(self, detail: str) -> None:
        """Close the connection, drop its messages, and count the rejection: a message of the peer broke a rule."""

    @property
    def is_clear(self) -> bool:
        """Is the send buffer empty?  While it is not, retransmitting pages is useless."""

    @property
    def lag_ms(self) -> int:
        """The peer's engine has answered all messages that arrived longer ago than this.

        It exceeds a pass of that engine while the peer is alive.  It is 0 while the peer is silent or not connected.
        """


MACHINE_CLOCK = MonotonicClock()


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one engine."""

    forward: Forward | None = None  # None: it is made from a checkpoint
    clock: Clock = MACHINE_CLOCK
    observer: Observer | None = None  # None: there are no events
    backing: Backing | None = None  # None: no page lacks memory
    host: HostStore | None = None  # None: the engine copies by itself
    proposer: Proposer | None = None  # None: drafts are looked up in earlier tokens
    link: Link | None = None  # which a prefill engine or a decode engine needs
