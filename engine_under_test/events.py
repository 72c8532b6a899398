"""What the engine tells its observer, in the order in which it happens.

Units are page ids of the named pool, or rows of the request table (pool "rows").  Lengths and
positions are in tokens.  `PoolCounts` is one number of pages per pool.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine_under_test.units import Owner

Event = NamedTuple  # any of these
PoolCounts = tuple[tuple[str, int], ...]


class Taken(NamedTuple):
    """Free units now belong to `owner`."""

    pool: str
    units: tuple[int, ...]
    owner: Owner


class Given(NamedTuple):
    """Units changed hands without being freed."""

    pool: str
    units: tuple[int, ...]
    from_owner: Owner
    to_owner: Owner


class Freed(NamedTuple):
    """`owner` gave units back; they can be taken once launch `after` has completed (0: at once)."""

    pool: str
    units: tuple[int, ...]
    owner: Owner
    cause: str
    after: int


class Refused(NamedTuple):
    """A take found too few free units, or no memory behind them where `want` is at most `free`.

    The same take has taken nothing in any other pool.
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
    """The tree holds [0, end) of a request's tokens; it owned [0, protected_len) before."""

    request_id: int
    protected_len: int
    frontier: int
    end: int


class Split(NamedTuple):
    """Node `upper` now stands above `node` and holds its first `length` tokens."""

    node: int
    upper: int
    length: int


class Recovered(NamedTuple):
    """A tombstone became live again; `locked` nodes kept their pages and took over the peers."""

    node: int
    component: str
    locked: bool


class Tombstoned(NamedTuple):
    """A node gave up its pages of one component and stays for the others."""

    node: int
    component: str
    in_tail: bool


class Removed(NamedTuple):
    """A node left the tree with all its pages; `component` is the pool that was short."""

    node: int
    component: str
    in_tail: bool


class Stored(NamedTuple):
    """A node has its pages of one component now, on the device or `on_host`; `key` are its tokens from `start` on."""

    node: int
    parent: int
    namespace: int
    start: int
    key: Sequence[int]
    component: str
    on_host: bool


class Dropped(NamedTuple):
    """A node has its pages of one component no more, on the device or `on_host`; it has `length` tokens."""

    node: int
    length: int
    component: str
    on_host: bool


class Uprooted(NamedTuple):
    """A node is in the tree no more."""

    node: int


class Demoted(NamedTuple):
    """A node gave up all its pages on the device, for want of pages of `component`, and goes on on the host alone."""

    node: int
    component: str
    in_tail: bool


class Evicted(NamedTuple):
    """An eviction ended: what was needed, less what was spared; what came free, what could still be evicted."""

    need: PoolCounts
    freed: PoolCounts
    left: PoolCounts


class Locked(NamedTuple):
    receipt: int
    node: int


class Unlocked(NamedTuple):
    receipt: int
    node: int


class Slid(NamedTuple):
    """A request gave up its windowed pages below `frontier`."""

    request_id: int
    before: int
    frontier: int


class Rejected(NamedTuple):
    """Refused at arrival: it could not run on an empty engine."""

    request_id: int
    prompt_len: int
    max_new_tokens: int
    reason: str


class Admitted(NamedTuple):
    """A reservation was made for [start, end) of a request: `firm` pages, `demand` with the estimate."""

    request_id: int
    start: int
    end: int
    firm: PoolCounts
    demand: PoolCounts


class Parked(NamedTuple):
    """An unfinished chunk did not get its next pages in this step; it holds nothing firm."""

    request_id: int
    committed_len: int


class Retracted(NamedTuple):
    """A request gave back everything and waits again; `need` was firm and short."""

    request_id: int
    num_outputs: int
    need: PoolCounts


class RanOut(NamedTuple):
    """Pages that were promised could not be had; the request was put back."""

    request_id: int
    pool: str
    want: int
    free: int


class Preempted(NamedTuple):
    """A running request gave back everything and waits again, for the more important request `by`."""

    request_id: int
    num_outputs: int
    by: int


class GaveWay(NamedTuple):
    """A request that had loaded and computed nothing gave back everything and waits again, so that `by` can go on."""

    request_id: int
    by: int


class Finished(NamedTuple):
    request_id: int
    reason: str
    detail: str = ""


class Launched(NamedTuple):
    """One forward pass: per entry the request and the positions [start, end) that it computes."""

    launch: int
    entries: tuple[tuple[int, int, int], ...]


class Late(NamedTuple):
    """A pass was asked for and is not done; nothing of it was taken."""

    launch: int


class Failed(NamedTuple):
    """A pass failed; nothing of what it should have written counts.  Completed follows."""

    launch: int
    reason: str


class Discarded(NamedTuple):
    """What a pass computed for a request that has ended, or given back its pages, since the launch."""

    launch: int
    request_id: int


class Completed(NamedTuple):
    """A pass reads and writes nothing any more."""

    launch: int


class Submitted(NamedTuple):
    """A client asked for something; whether it is refused is told next."""

    request_id: int
    tokens: tuple[int, ...]
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    namespace: int
    priority: int
    arrival_ms: int
    session: int  # whose turn it is to be; 0 where it is nobody's


class AbortAsked(NamedTuple):
    """A client wants no more of a request, which may have ended already."""

    request_id: int


class StepBegan(NamedTuple):
    now_ms: int


class StepEnded(NamedTuple):
    """Everything that one step does is done; what clients hear of it comes next."""


class Flushed(NamedTuple):
    """Whoever runs the engine had everything cached dropped that nobody has locked."""


class Paused(NamedTuple):
    """No pass is launched from now on; those who ran have given back everything and wait."""


class Resumed(NamedTuple):
    """Passes are launched again."""


# --- the host tier


class CopyDropped(NamedTuple):
    """The host gave up pages of its copy of a node, which were the `pools`'."""

    node: int
    pools: tuple[str, ...]


class TransferBegan(NamedTuple):
    """Pages are being copied to the host, or from there: per pool on the device which, and from or to which there."""

    transfer: int
    to_host: bool
    pages: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]


class TransferEnded(NamedTuple):
    """A copy is done, or came to nothing for the reason `failure`."""

    transfer: int
    failure: str | None


class LoadPlanned(NamedTuple):
    """A request was admitted and waits for `transfer`, which brings what it lacks of [0, length): `firm` pages at once,
    0 where others wait for it already; `demand` with all that may follow.

    Where a pool refused them there is no transfer (0), and it goes on from the device alone.
    """

    request_id: int
    length: int
    transfer: int
    firm: PoolCounts
    demand: PoolCounts


class Loaded(NamedTuple):
    """What a request waited for has been loaded, or not: it goes on from [0, length), on `pages`."""

    request_id: int
    length: int
    pages: tuple[int, ...]


# --- streaming sessions


class SessionOpened(NamedTuple):
    """A conversation begins."""

    session: int
    namespace: int
    now_ms: int


class Lent(NamedTuple):
    """A turn goes on from the first `length` tokens of what its session keeps, on `pages`, which are the turn's now."""

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
    """A session keeps nothing any more: it was closed, others needed the room, or a turn could not go on from it."""

    session: int
    cause: str


class TurnRefused(NamedTuple):
    """A request came as a turn of a session that was not open, or that somebody else had."""

    session: int
    request_id: int


class CloseAsked(NamedTuple):
    """A client wants no more of a session, which may be closed already, or has to wait until its turn has ended."""

    session: int


class SessionClosed(NamedTuple):
    """Nobody can take a turn any more."""

    session: int


# --- draft tokens


class Proposed(NamedTuple):
    """A launched pass computes draft tokens behind the last token of a request, too."""

    launch: int
    request_id: int
    drafts: tuple[int, ...]


class Verified(NamedTuple):
    """The model said `tokens`, one behind the last token and one behind each draft; so many drafts are accepted."""

    launch: int
    request_id: int
    num_accepted: int
    tokens: tuple[int, ...]


# --- KV on its way from a prefill engine to a decode engine


class Reserved(NamedTuple):
    """The decode engine took `pages` for [0, length) of a request; [0, prefix_len) was cached there."""

    request_id: int
    prefix_len: int
    length: int
    pages: PoolCounts


class Invited(NamedTuple):
    """The decode engine has reserved pages for all after [0, prefix_len), so the prompt may be computed."""

    request_id: int
    prefix_len: int


class Sent(NamedTuple):
    """Pages of one pool, from page index `first` of the prompt on, were sent."""

    request_id: int
    pool: str
    first: int
    pages: tuple[int, ...]


class HandedOver(NamedTuple):
    """A request ended in the prefill engine, which holds its record until the transfer of [0, length) is complete."""

    request_id: int
    length: int


class Filled(NamedTuple):
    """Reserved pages were filled from the transfer, or from a swap; `places` are their page indices."""

    request_id: int
    pool: str
    places: tuple[int, ...]
    pages: tuple[int, ...]


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
