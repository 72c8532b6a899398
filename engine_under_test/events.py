"""The events that an engine reports to its observer, in order.

Units are page ids of the named pool, or rows of the request table (pool "rows").  Pages without a named pool are of the
anchor pool; 0 stands for a windowed page that is not held.  Lengths and positions are in tokens.  `PoolCounts` is one
number of pages per pool.  A `component` is the name of its pool.  A node is `in_tail` if a match to the end of some
branch reads the node through its window.
"""

from collections.abc import Sequence
from typing import NamedTuple

from invariants.events import Owner

Event = NamedTuple  # any of these
PoolCounts = tuple[tuple[str, int], ...]


class Taken(NamedTuple):
    """Free units now belong to `owner`."""

    pool: str
    units: tuple[int, ...]
    owner: Owner


class Given(NamedTuple):
    """Units changed their owner without being freed."""

    pool: str
    units: tuple[int, ...]
    from_owner: Owner
    to_owner: Owner


class Freed(NamedTuple):
    """`owner` freed units; they can be taken again once launch `after` has completed (0: at once)."""

    pool: str
    units: tuple[int, ...]
    owner: Owner
    cause: str
    after: int


class Refused(NamedTuple):
    """A take found too few free units, or no memory behind them if `want` is at most `free`.

    The take has taken no unit of any other pool.
    """

    pool: str
    owner: Owner
    want: int
    free: int


class Paired(NamedTuple):
    """Units of two pools are peers from now on, index by index; a peer of 0 ends a pairing."""

    from_pool: str
    to_pool: str
    units: tuple[int, ...]
    peers: tuple[int, ...]


class Matched(NamedTuple):
    """The longest usable cached prefix of `key` in `namespace` is `length` tokens, on `pages`."""

    request_id: int
    namespace: int
    key: Sequence[int]
    length: int
    pages: tuple[int, ...]


class Inserted(NamedTuple):
    """The tree holds [0, end) of a request's tokens; the request shared [0, protected_len) with the tree before.

    The request has freed its windowed pages below `frontier`.
    """

    request_id: int
    protected_len: int
    frontier: int
    end: int


class Split(NamedTuple):
    """A node was split: its new parent `upper` holds its first `length` tokens."""

    node: int
    upper: int
    length: int


class Recovered(NamedTuple):
    """A tombstone became live again; a `locked` node kept its pages and took over the incoming peers."""

    node: int
    component: str
    locked: bool


class Tombstoned(NamedTuple):
    """A node released its pages of one component, and stays in the tree for the others."""

    node: int
    component: str
    in_tail: bool


class Removed(NamedTuple):
    """A node left the tree and released all its pages; `component` is the pool that was short."""

    node: int
    component: str
    in_tail: bool


class Stored(NamedTuple):
    """A node got its pages of one component, on the device or `on_host`; `key` has its tokens, from `start` on.

    `parent` is 0 if the parent is a root.
    """

    node: int
    parent: int
    namespace: int
    start: int
    key: Sequence[int]
    component: str
    on_host: bool


class Dropped(NamedTuple):
    """A node lost its pages of one component, on the device or `on_host`; it has `length` tokens."""

    node: int
    length: int
    component: str
    on_host: bool


class Uprooted(NamedTuple):
    """A node is no longer in the tree."""

    node: int


class Demoted(NamedTuple):
    """A node released all its device pages, and stays for its copy; `component` is the pool that was short."""

    node: int
    component: str
    in_tail: bool


class Evicted(NamedTuple):
    """An eviction ended: the pages it had to free, fewer if it spared nodes; the pages freed; those still evictable."""

    need: PoolCounts
    freed: PoolCounts
    left: PoolCounts


class Locked(NamedTuple):
    """A new receipt locks the pages that a reader at the end of `node` needs."""

    receipt: int
    node: int


class Unlocked(NamedTuple):
    """The lock of a receipt was released."""

    receipt: int
    node: int


class Slid(NamedTuple):
    """A request released its pages of a windowed pool below `frontier`, which was at `before`."""

    request_id: int
    before: int
    frontier: int
    pool: str = ""  # "": of every windowed pool


class Rejected(NamedTuple):
    """A request was rejected at submit: it could not run even on an empty engine."""

    request_id: int
    prompt_len: int
    max_new_tokens: int
    reason: str


class Admitted(NamedTuple):
    """Pages were reserved for a chunk [start, end), the first or a later one: `firm`, or `demand` with the estimate."""

    request_id: int
    start: int
    end: int
    firm: PoolCounts
    demand: PoolCounts


class Parked(NamedTuple):
    """A chunked or loaded request gets no chunk in this step, for want of pages or of budget; nothing is reserved."""

    request_id: int
    committed_len: int


class Retracted(NamedTuple):
    """A request released everything and waits again; `need` are the pages that were missing."""

    request_id: int
    num_outputs: int
    need: PoolCounts


class RanOut(NamedTuple):
    """Reserved pages could not be taken; the request is queued again."""

    request_id: int
    pool: str
    want: int
    free: int


class Preempted(NamedTuple):
    """A running request released everything and waits again, for request `by` of higher priority."""

    request_id: int
    num_outputs: int
    by: int


class GaveWay(NamedTuple):
    """A loaded request that has computed nothing released everything and waits again, so that `by` gets pages."""

    request_id: int
    by: int


class Finished(NamedTuple):
    """A request has ended, for any `reason`: also one that was aborted or rejected."""

    request_id: int
    reason: str
    detail: str = ""


class Launched(NamedTuple):
    """A forward pass was launched; an entry is a request and the positions [start, end) that the pass computes."""

    launch: int
    entries: tuple[tuple[int, int, int], ...]


class Late(NamedTuple):
    """The engine tried to collect a pass, and the pass still runs."""

    launch: int


class Failed(NamedTuple):
    """A pass failed; the content of the slots that it writes is undefined.  Completed follows."""

    launch: int
    reason: str


class Discarded(NamedTuple):
    """The result of a pass was discarded for a request that has ended or was requeued since the launch."""

    launch: int
    request_id: int


class Completed(NamedTuple):
    """A pass has completed; it reads and writes no page any more."""

    launch: int


class Submitted(NamedTuple):
    """A client submitted a request; if it is refused, Rejected or TurnRefused follows."""

    request_id: int
    tokens: tuple[int, ...]
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    namespace: int
    priority: int
    arrival_ms: int
    session: int  # the request is a turn of this session; 0 for none


class AbortAsked(NamedTuple):
    """A client aborted a request, which may have ended already."""

    request_id: int


class StepBegan(NamedTuple):
    now_ms: int


class StepEnded(NamedTuple):
    """A step has ended; its outputs are delivered next."""


class Flushed(NamedTuple):
    """A flush begins, which drops all unlocked cached pages."""


class Paused(NamedTuple):
    """No pass is launched from now on; the active requests release everything and wait."""


class Resumed(NamedTuple):
    """Passes are launched again."""


# --- the host tier


class CopyDropped(NamedTuple):
    """The host dropped the copy of a node in these `pools`."""

    node: int
    pools: tuple[str, ...]


class CopyBegan(NamedTuple):
    """A copy to or from the host began; `pages` has pool, device pages and host pages, index by index."""

    job: int
    to_host: bool
    pages: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]


class CopyEnded(NamedTuple):
    """A copy to or from the host has ended, or has failed for the reason `failure`."""

    job: int
    failure: str | None


class LoadPlanned(NamedTuple):
    """A request was admitted and waits for `job`, which loads its missing pages of [0, length).

    `firm` are the pages of the load, 0 if another request has begun it; `demand` adds all pages that may follow.  If a
    pool refused the pages, `job` is 0, and the request uses only its match on the device.
    """

    request_id: int
    length: int
    job: int
    firm: PoolCounts
    demand: PoolCounts


class Loaded(NamedTuple):
    """The load for a request has ended, complete or not; the request has [0, length), on `pages`."""

    request_id: int
    length: int
    pages: tuple[int, ...]


# --- streaming sessions


class SessionOpened(NamedTuple):
    """A session was opened."""

    session: int
    namespace: int
    now_ms: int


class Lent(NamedTuple):
    """A turn took over the record of its session, cut to the first `length` tokens, on `pages`."""

    session: int
    request_id: int
    length: int
    pages: tuple[int, ...]


class Kept(NamedTuple):
    """A turn has ended, and its session keeps the KV of `length` tokens."""

    session: int
    request_id: int
    length: int


class GivenUp(NamedTuple):
    """A session released its KV: it was closed, its pages were needed, or its turn starts from the tree instead."""

    session: int
    cause: str


class TurnRefused(NamedTuple):
    """A turn was refused: its session is not open, or has another turn."""

    session: int
    request_id: int


class CloseAsked(NamedTuple):
    """A client closed a session, which may be closed already, or is closed when its turn has ended."""

    session: int


class SessionClosed(NamedTuple):
    """A session was closed, and accepts no more turns."""

    session: int


# --- draft tokens


class Proposed(NamedTuple):
    """A launched pass also computes draft tokens, behind the last token of a request."""

    launch: int
    request_id: int
    drafts: tuple[int, ...]


class Verified(NamedTuple):
    """The model generated `tokens`, one behind the last token and each draft; `num_accepted` drafts are accepted."""

    launch: int
    request_id: int
    num_accepted: int
    tokens: tuple[int, ...]


# --- transfers from a prefill engine to a decode engine


class Reserved(NamedTuple):
    """The decode engine took `pages` for [prefix_len, length) of a request; [0, prefix_len) was cached there.

    Of a windowed pool it takes only the pages that the next token reads.
    """

    request_id: int
    prefix_len: int
    length: int
    pages: PoolCounts


class Invited(NamedTuple):
    """The prefill engine may compute a prompt: the decode engine has reserved pages for all after [0, prefix_len)."""

    request_id: int
    prefix_len: int


class Sent(NamedTuple):
    """Pages of one pool, from page index `first` of the prompt on, were sent."""

    request_id: int
    pool: str
    first: int
    pages: tuple[int, ...]


class HandedOver(NamedTuple):
    """A request ended in the prefill engine, which holds its record until the transfer of [0, length) has ended."""

    request_id: int
    length: int


class Filled(NamedTuple):
    """Reserved pages were filled from the transfer, or from a swap; `places` are their page indices.

    `checksums` has those that came with the pages, one per page, or none.
    """

    request_id: int
    pool: str
    places: tuple[int, ...]
    pages: tuple[int, ...]
    checksums: tuple[int, ...] = ()


class TakenOver(NamedTuple):
    """All of [0, length) has arrived, with the output `tokens` so far; the request runs from now on."""

    request_id: int
    length: int
    tokens: tuple[int, ...]


class SetAside(NamedTuple):
    """A request in the decode engine released its pages; a copy of [0, length) is kept outside the pools."""

    request_id: int
    length: int


class LetGo(NamedTuple):
    """The record that was held for a transfer was released, for this cause."""

    request_id: int
    cause: str
