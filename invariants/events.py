"""What happened inside a step, in the words of the invariants; an adapter translates its engine's.

Units are ids in the named pool ("rows" for the request table).  Lengths and positions are in tokens.
`PoolCounts` is one number of units per pool.  An engine that cannot tell of something never does:
what is judged on such an event is then never evaluated, and the campaign says so.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from invariants.draft_events import DraftEvent as DraftEvent
from invariants.draft_events import Proposed as Proposed
from invariants.draft_events import Verified as Verified
from invariants.handover_events import Filled as Filled
from invariants.handover_events import HandedOver as HandedOver
from invariants.handover_events import HandoverEvent
from invariants.handover_events import Invited as Invited
from invariants.handover_events import LetGo as LetGo
from invariants.handover_events import Reserved as Reserved
from invariants.handover_events import Sent as Sent
from invariants.handover_events import SetAside as SetAside
from invariants.handover_events import TakenOver as TakenOver
from invariants.host_events import Copied as Copied
from invariants.host_events import CopyDropped as CopyDropped
from invariants.host_events import Demoted as Demoted
from invariants.host_events import Dropped as Dropped
from invariants.host_events import Loaded as Loaded
from invariants.host_events import LoadPlanned as LoadPlanned
from invariants.host_events import PoolCounts as PoolCounts
from invariants.host_events import Stored as Stored
from invariants.host_events import TransferBegan as TransferBegan
from invariants.host_events import TransferEnded as TransferEnded
from invariants.session_events import GivenUp as GivenUp
from invariants.session_events import Kept as Kept
from invariants.session_events import Lent as Lent
from invariants.session_events import SessionClosed as SessionClosed
from invariants.session_events import SessionEvent as SessionEvent
from invariants.session_events import SessionOpened as SessionOpened
from invariants.session_events import TurnRefused as TurnRefused
from invariants.view import Owner


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
    """A running request gave back everything and waits again; `need` was firm and short."""

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
    """A request that had loaded and computed nothing gave up its record and waits again, so that `by` can go on."""

    request_id: int
    by: int


class Finished(NamedTuple):
    request_id: int
    reason: str


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
    """The forward read `tags` of `pool` for a request's positions from `start` on."""

    launch: int
    request_id: int
    pool: str
    start: int
    tags: "array[int]"


class Written(NamedTuple):
    """The forward wrote positions [start, end) of a request; `pages` hold them, in order."""

    launch: int
    request_id: int
    pool: str
    start: int
    end: int
    pages: tuple[int, ...]


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


LEAVINGS = (
    Finished,
    Retracted,
    RanOut,
    Preempted,
    GaveWay,
)  # a request gives up its record; so do all whose pass Failed

Event = (
    Taken
    | Given
    | Freed
    | Refused
    | Paired
    | Matched
    | Inserted
    | Split
    | Recovered
    | Tombstoned
    | Removed
    | Stored
    | Dropped
    | Demoted
    | CopyDropped
    | TransferBegan
    | TransferEnded
    | Copied
    | LoadPlanned
    | Loaded
    | Evicted
    | Locked
    | Unlocked
    | Slid
    | Rejected
    | Admitted
    | Parked
    | Retracted
    | RanOut
    | Preempted
    | GaveWay
    | Finished
    | Launched
    | Late
    | Failed
    | Discarded
    | Completed
    | Paused
    | Resumed
    | Fired
    | Read
    | Written
    | Compared
    | Modelled
    | SessionEvent
    | DraftEvent
    | HandoverEvent
)
