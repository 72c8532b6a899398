"""What happened inside a step, in the words of the invariants; an adapter translates its engine's.

Units are ids in the named pool ("rows" for the request table).  Lengths and positions are in tokens.
`PoolCounts` is one number of units per pool.  An engine that cannot tell of something never does:
what is judged on such an event is then never evaluated, and the campaign says so.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from invariants.view import Owner

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

    The pools that the same take asked before have theirs back.
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
    """A look-up of `key` in `namespace` found a cached prefix of `length` tokens, on `pages`."""

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


class Evicted(NamedTuple):
    """An eviction ended: what was needed, what came free, what could still be evicted."""

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
    """A running request gave back everything and waits again; the firm `need` was short (empty: not known)."""

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
    """A running request gave back everything and waits again, for the more important request `by` (0: not known)."""

    request_id: int
    num_outputs: int
    by: int


class GaveWay(NamedTuple):
    """A request that had loaded and computed nothing gave up its record and waits again, so that `by` can go on."""

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


class Paused(NamedTuple):
    """No pass is launched from now on; those who ran have given back everything and wait."""


class Resumed(NamedTuple):
    """Passes are launched again."""


class Fired(NamedTuple):
    """A fault that was armed came true at a port."""

    fault: str


class Read(NamedTuple):
    """The forward read `tags` of `pool` for a request's positions from `start` on.

    `component` is an index into Snapshot.components; components may share a pool.
    """

    launch: int
    request_id: int
    pool: str
    start: int
    tags: "array[int]"
    component: int = 0


class Written(NamedTuple):
    """The forward wrote positions [start, end) of a request; `pages` hold them, in order.

    `component` is an index into Snapshot.components; components may share a pool.
    """

    launch: int
    request_id: int
    pool: str
    start: int
    end: int
    pages: tuple[int, ...]
    component: int = 0


class Compared(NamedTuple):
    """The forward computed positions [start, end) of a request, and was held against a model without a cache.

    Logits differ by `difference` at `position`, the first where that is above `tolerance`, or else where it is most;
    None where no logits were asked for.  `token` was sampled, if any, and `likeliest` should have been.
    """

    launch: int
    request_id: int
    start: int
    end: int
    position: int
    difference: float | None
    tolerance: float
    token: int | None
    likeliest: int | None


class Modelled(NamedTuple):
    """Something that a naive model foretold, and what was found; told whether they agree or not."""

    what: str
    expected: object
    found: object


# --- the cache and its host tier


class Stored(NamedTuple):
    """A node has its units of a component now, on the device or `on_host`; `key` are its tokens from `start` on."""

    node: int
    parent: int
    namespace: int
    start: int
    key: Sequence[int]
    component: str
    on_host: bool


class Dropped(NamedTuple):
    """A node of `length` tokens has its units of a component no more, on the device or `on_host`."""

    node: int
    length: int
    component: str
    on_host: bool


class Demoted(NamedTuple):
    """A node gave up all its units on the device, for want of those of `component`; the host has a copy."""

    node: int
    component: str
    in_tail: bool


class CopyDropped(NamedTuple):
    """The host gave up units of its copy of a node, those of the components with these `pools`."""

    node: int
    pools: Sequence[str]


class TransferBegan(NamedTuple):
    """Units are being copied to the host, or from there: by the pool of the component those here, and those there."""

    transfer: int
    to_host: bool
    pages: Sequence[tuple[str, Sequence[int], Sequence[int]]]


class TransferEnded(NamedTuple):
    """A copy was acknowledged; where it has a `failure` what it wrote is undefined."""

    transfer: int
    failure: str | None


class Copied(NamedTuple):
    """What a transfer that was acknowledged has left in one pool: the pairs of units, here and there, that differ."""

    transfer: int
    pool: str
    different: Sequence[tuple[int, int]]


class LoadPlanned(NamedTuple):
    """A request was admitted that waits for a transfer, so that it may go on from [0, length); `firm` units were taken
    for it at once, none where that transfer was under way already, and `demand` may follow."""

    request_id: int
    length: int
    transfer: int
    firm: PoolCounts
    demand: PoolCounts


class Loaded(NamedTuple):
    """A request waits no longer for a transfer, and goes on from [0, length), on `pages`."""

    request_id: int
    length: int
    pages: Sequence[int]


# --- streaming sessions


class SessionOpened(NamedTuple):
    """A conversation begins."""

    session: int
    namespace: int
    now_ms: int


class Lent(NamedTuple):
    """A turn goes on from the first `length` tokens of what its session kept, on `pages` of the first component."""

    session: int
    request_id: int
    length: int
    pages: Sequence[int]


class Kept(NamedTuple):
    """A turn has ended, and its session keeps the KV of `length` tokens."""

    session: int
    request_id: int
    length: int


class GivenUp(NamedTuple):
    """A session keeps nothing any more."""

    session: int
    cause: str


class TurnRefused(NamedTuple):
    """A request came as a turn of a session that was not open, or that somebody else had."""

    session: int
    request_id: int


class SessionClosed(NamedTuple):
    """Nobody can take a turn any more."""

    session: int


# --- draft tokens


class Proposed(NamedTuple):
    """A launched pass computes draft tokens behind the last token of a request, too."""

    launch: int
    request_id: int
    drafts: Sequence[int]


class Verified(NamedTuple):
    """The model said `tokens`, one behind the last token and one behind each draft; so many drafts are accepted."""

    launch: int
    request_id: int
    num_accepted: int
    tokens: Sequence[int]


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


LEAVINGS = (
    Finished,
    Retracted,
    RanOut,
    Preempted,
    GaveWay,
)  # a request gives up its record; so do all whose pass Failed

ALL_EVENTS = frozenset(
    name for name, kind in vars().items() if isinstance(kind, type) and kind.__module__ == __name__
)  # the names of the types, for an engine that tells none or few of them
