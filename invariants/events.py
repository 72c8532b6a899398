"""The events of a step: the vocabulary in which an engine reports what it does.

Our own engine and its fakes report these types; the adapter of another engine makes them from that engine's calls.
Units are ids in the named pool ("rows" for the request table); 0 stands for a windowed page that is not held.  Pages
without a named pool are of the first component.  Lengths and positions are in tokens.  A component is named by its
pool, except in Read and Written.  `PoolCounts` is one number of units per pool.

If an engine never reports a type of event, its snapshots name the type in `unreported`: an invariant that needs it is
not applicable, and the campaign's report says so.
"""

from array import array
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

Event = NamedTuple  # any type of event below
PoolCounts = tuple[tuple[str, int], ...]


# --- owners of units, reasons of ends, and causes of frees


class Owner(NamedTuple):
    """The holder that must free a unit: a kind (request, tree, session, transfer, load…) and its ordinal (0: none)."""

    kind: str
    id: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kind} {NODE_LETTER if self.kind == TREE_KIND else self.kind[0]}{self.id}" if self.id else self.kind
        )


REQUEST_KIND = "request"
SESSION_KIND = "session"
HANDOVER_KIND = "transfer"  # between engines: the KV to send, until it has arrived, and the pages for KV to receive
TREE_KIND = "tree"
BACKUP_KIND = "backup"  # a copy from the device to the host
LOAD_KIND = "load"  # a copy from the host to the device
COPY_JOB_KINDS = frozenset({BACKUP_KIND, LOAD_KIND})
FENCE_KIND = "fence"  # holds released units and locks until a launch has completed
NODE_LETTER = "n"
SWAP_KIND = "host copy"  # has the copy on the host of a request that waits with its KV
GROUP_KIND = "group"  # a group of layers, which has units of memory that move between the groups
OUTSIDE_KIND = "pressure"  # takes units of one pool from outside the engine
OWNER_KINDS = (  # with ids, beside the tree's nodes
    *(REQUEST_KIND, SESSION_KIND, HANDOVER_KIND, BACKUP_KIND, LOAD_KIND),
    *(SWAP_KIND, GROUP_KIND),
)
ABSENT = Owner("absent")  # of a unit whose memory belongs to no pool or to another one, as memory moves between groups
TREE = Owner(TREE_KIND)


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"  # it has `max_new_tokens` output tokens
    ABORT = "abort"  # by the client
    TIMEOUT = "timeout"  # `request_timeout_ms` have passed since its arrival
    REJECTED = "rejected"  # at submit: it can never run, or its session accepts no turn
    OUT_OF_MEMORY = "out of memory"  # no other request can free the pages that it lacks
    FORWARD_FAILED = "forward failed"  # more than `max_forward_retries` times
    ERROR = "error"  # the engine reports no other cause; of vLLM: a load or a grammar failed
    TRANSFER_FAILED = "transfer failed"  # the sides differ, or the peer closed the transfer
    PEER_TIMEOUT = "peer timeout"  # the peer engine was silent for too long


class FreeCause(StrEnum):
    """Why units were freed.  An engine may have other causes; laws tell only SLID and ROLLED_BACK apart.

    The units of a request that ends for another reason than STOP or LENGTH have that FinishReason as their cause, or
    the reason that the peer gave in a Close.
    """

    EVICTED = "evicted"  # from the tree, in a shortage or a flush
    DROPPED = "dropped"  # the host dropped its copy of a node
    DUPLICATE = "duplicate"  # the tree already had pages of these tokens
    RECOVERED = "recovered"  # a tombstone became live with the pages of a request, instead of its own
    PEERS_TAKEN_OVER = "peers taken over"  # a locked tombstone kept its pages, and took only the peers that it lacked
    SLID = "slid"  # their tokens left the window
    FINISHED = "finished"  # the request has ended with STOP or LENGTH
    PAUSED = "paused"
    GAVE_WAY = "gave way"  # a loaded request released them for another request that has begun
    RAN_OUT = "ran out"  # the request could not take all pages that were reserved for it
    RETRACTED = "retracted"
    PREEMPTED = "preempted"
    FORWARD_FAILED = "forward failed"  # the request is queued again
    TURN_ENDED = "turn ended"  # the row of the turn; its session keeps the pages
    CUT = "cut"  # pages behind the tokens that a session keeps or its next turn reuses
    CLOSED = "closed"  # with their session
    DIVERGED = "diverged"  # the next turn of the session starts from the tree instead
    PAGES_NEEDED = "pages needed"  # an idle session released them in a shortage, or exceeded the share of idle sessions
    BACKUP_UNUSED = "backup unused"  # the backup succeeded, but the host copy above it was dropped
    BACKUP_FAILED = "backup failed"
    LOAD_UNUSED = "load unused"  # the load succeeded, but its node had become live in the meantime
    LOAD_FAILED = "load failed"
    HANDED_OVER = "handed over"  # the decode side has the whole prompt
    ROLLED_BACK = "rolled back"  # another pool refused a part of the same take


# --- units, requests and passes


class Taken(NamedTuple):
    """`owner` took free units."""

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
    """A take failed because too few units were free; if `want` <= `free`, the memory of free units was not available.

    Units that the same take had got from other pools are free again.
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
    """A look-up of `key` in `namespace` found a cached prefix of `length` tokens, on `pages` of the first component."""

    request_id: int
    namespace: int
    key: Sequence[int]
    length: int
    pages: tuple[int, ...]


class Inserted(NamedTuple):
    """A request's tokens [0, end) are in the tree now; before, it shared [0, protected_len) with the tree."""

    request_id: int
    protected_len: int
    frontier: int  # below which the request has freed its windowed pages
    end: int


class Split(NamedTuple):
    """A node was split: the new node `upper` is the parent of `node` and has its first `length` tokens."""

    node: int
    upper: int
    length: int


class Recovered(NamedTuple):
    """A tombstone became live again, with the inserted pages."""

    node: int
    component: str
    locked: bool  # then it kept its pages of the anchor pool, and got only the peers of the inserted pages


class Tombstoned(NamedTuple):
    """A node lost its pages of one component and stays in the tree for the others."""

    node: int
    component: str
    in_tail: bool  # a match to the end of some branch would have read the node through its window


class Removed(NamedTuple):
    """A node and all its pages left the tree, because `component` was short of them; see Tombstoned for `in_tail`."""

    node: int
    component: str
    in_tail: bool


class Evicted(NamedTuple):
    """An eviction ended: the units that it had to free, those that it freed, and those that are still evictable.

    It had to free fewer units if it spared nodes.
    """

    need: PoolCounts
    freed: PoolCounts
    left: PoolCounts


class Locked(NamedTuple):
    """The pages that a reader at the end of `node` needs were locked; `receipt` is the id of the lock."""

    receipt: int
    node: int


class Unlocked(NamedTuple):
    """The lock with this receipt was released; it was on the path to `node`."""

    receipt: int
    node: int


class LockCount(NamedTuple):
    """The number of locks in one pool, on a node of the tree with these units, or on units without a node (0)."""

    pool: str
    node: int
    units: tuple[int, ...]
    before: int
    after: int


class LocksCounted(NamedTuple):
    """A call of the engine has changed these numbers of locks; reported in a run that is traced, so no law reads it."""

    request_id: int  # for which it was called; 0: not known
    counts: tuple[LockCount, ...]


class Slid(NamedTuple):
    """The window of a request moved on: its windowed pages between the frontier `before` and `frontier` were released.

    Private pages were freed, and pages of the tree were unlocked.
    """

    request_id: int
    before: int
    frontier: int
    pool: str = ""  # "": of every windowed pool


class Rejected(NamedTuple):
    """A request was rejected at arrival: it exceeds a limit, or could not run even on an empty engine."""

    request_id: int
    prompt_len: int
    max_new_tokens: int
    reason: str
    is_invalid: bool = False  # no engine with this model could run it: an unknown token, or a negative number


class Admitted(NamedTuple):
    """`firm` pages were reserved for a chunk [start, end) of a request; `demand` adds the estimate of later ones."""

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
    """A running request released everything and waits again; `need` are the missing pages (empty: not known)."""

    request_id: int
    num_outputs: int
    need: PoolCounts


class RanOut(NamedTuple):
    """A take of reserved pages failed; the request released everything and waits again."""

    request_id: int
    pool: str
    want: int
    free: int


class Preempted(NamedTuple):
    """A running request released everything and waits again, in favour of `by`, of higher priority (0: not known)."""

    request_id: int
    num_outputs: int
    by: int


class GaveWay(NamedTuple):
    """A request that had loaded KV, but computed nothing yet, released it and waits again so that `by` can continue."""

    request_id: int
    by: int


class Finished(NamedTuple):
    """A request ended, for any FinishReason: also one that was aborted or rejected.  `detail` is text for people."""

    request_id: int
    reason: str
    detail: str = ""


class Launched(NamedTuple):
    """One forward pass: per entry the request and its positions [start, end), without draft tokens (see Proposed)."""

    launch: int
    entries: tuple[tuple[int, int, int], ...]


class Late(NamedTuple):
    """The engine asked for the result of a pass that has not completed."""

    launch: int


class Failed(NamedTuple):
    """A pass failed: its results and the content of the slots that it writes are undefined.  Completed follows."""

    launch: int
    reason: str


class Discarded(NamedTuple):
    """The result of a pass for a request was not used: the request ended or released its pages after the launch."""

    launch: int
    request_id: int


class Completed(NamedTuple):
    """A pass ended, and reads and writes nothing from now on."""

    launch: int


class Paused(NamedTuple):
    """No pass is launched from now on.  The active requests release everything and wait, or it `keeps` their KV."""

    keeps: bool = False


class Resumed(NamedTuple):
    """Passes are launched again."""


class CacheReset(NamedTuple):
    """The engine was asked to drop all KV and to reset its pools, and has done it or refused."""

    is_done: bool
    idle_steps: int  # the last ones, in which no request was unfinished, or the engine was paused
    is_copying: bool  # a copy to or from the host had not ended when the engine could last learn of it, or is now lost


class Flushed(NamedTuple):
    """A flush begins, which drops all unlocked cached pages."""


class Fired(NamedTuple):
    """An armed fault fired at a port."""

    fault: str


class Read(NamedTuple):
    """The forward read `tags` of `pool` for a request's positions from `start` on."""

    launch: int
    request_id: int
    pool: str
    start: int
    tags: "array[int]"
    component: int = 0  # an index into Snapshot.components, which may share a pool


class Written(NamedTuple):
    """The forward wrote positions [start, end) of a request; `pages` hold them, in order; `component` as in Read."""

    launch: int
    request_id: int
    pool: str
    start: int
    end: int
    pages: tuple[int, ...]
    component: int = 0


END = -1


class Compared(NamedTuple):
    """The forward's results for positions [start, end) of a request, compared with those of a model without a cache.

    Logits differ by `difference` at `position`: the first position where it exceeds `tolerance`, else the position with
    the largest difference; None if no logits were requested.  `token` was sampled (None: none); `likeliest` is the
    expected token. In place of a token, END stands for the end of an answer.
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


# --- the cache and its host tier


class Stored(NamedTuple):
    """A node got its units of a component, on the device or `on_host`; `key` are its tokens from `start` on."""

    node: int
    parent: int  # 0: a root
    namespace: int
    start: int
    key: Sequence[int]
    component: str
    on_host: bool


class Dropped(NamedTuple):
    """A node of `length` tokens lost its units of a component, on the device or `on_host`."""

    node: int
    length: int
    component: str
    on_host: bool


class BlocksStored(NamedTuple):
    """The engine's own KV events report to routers that blocks are cached, on the device or `on_host`.

    `group` is an index into Snapshot.components.  A hash stands for the tokens of a block and all before them; `parent`
    is that of the block before the first one, None at the beginning of a prompt.
    """

    group: int
    hashes: tuple[int, ...]
    parent: int | None
    on_host: bool = False


class BlocksRemoved(NamedTuple):
    """The engine's own KV events report to routers that blocks are no longer cached, on the device or `on_host`."""

    group: int
    hashes: tuple[int, ...]
    on_host: bool = False


class BlocksCleared(NamedTuple):
    """The engine's own KV events report to routers that nothing is cached."""


class Demoted(NamedTuple):
    """A node with a copy on the host lost its units, because `component` was short; see Tombstoned for `in_tail`."""

    node: int
    component: str
    in_tail: bool


class CopyDropped(NamedTuple):
    """The host freed its copy of a node in the components with these (device) `pools`."""

    node: int
    pools: Sequence[str]


class CopyBegan(NamedTuple):
    """A copy to or from the host began: per component its pool, the units on the device, and those on the host."""

    job: int
    to_host: bool
    pages: Sequence[tuple[str, Sequence[int], Sequence[int]]]


class PrefetchSized(NamedTuple):
    """A prefetch from a storage asked for host memory for the `wanted` tokens that the storage has, and got `got`."""

    wanted: int
    got: int


class CopiedIn(NamedTuple):
    """A copy begins to write KV that no pass computed to `units`, for `owner`; with id 0 only the kind is known.

    The KV comes from the host, from another engine, or from what was set aside.
    """

    pool: str
    units: tuple[int, ...]
    owner: Owner


class CopyEnded(NamedTuple):
    """A copy was acknowledged; if it has failed for the reason `failure`, the content that it wrote is undefined."""

    job: int
    failure: str | None


class Copied(NamedTuple):
    """A successful copy was compared in one pool: the pairs (device unit, host unit) whose contents differ."""

    job: int
    pool: str
    different: Sequence[tuple[int, int]]


class Received(NamedTuple):
    """Pages that arrived, or were restored from a swap, were compared with their checksums: the units that differ."""

    request_id: int
    pool: str
    different: Sequence[int]


class BytesCompared(NamedTuple):
    """Slots of one pool were compared with the checksums of what was written there: the (unit, offset) that differ."""

    pool: str
    altered: Sequence[tuple[int, int]]


class WrongSlot(NamedTuple):
    """A slot that a request reads for its `position` has the KV of another prefix, that of `known_from` requests."""

    request_id: int
    position: int
    unit: int
    is_written: bool  # else the slot holds the KV of no prefix
    known_from: Sequence[int] = ()


class PrefixesCompared(NamedTuple):
    """The slots that a pass reads in one pool were compared with the prefixes of its requests."""

    launch: int
    pool: str
    wrong: Sequence[WrongSlot]  # the first of each request


class WrongKV(NamedTuple):
    """The slot `slot` of a unit, which a request reads for its `position`: the KV of a layer differs from the first."""

    request_id: int
    position: int
    layer: str
    unit: int
    slot: int
    difference: float | None  # None: nothing was computed for these tokens


class KVCompared(NamedTuple):
    """The KV that a pass reads in one pool was compared with that which was first computed for the same tokens."""

    launch: int
    pool: str
    tolerance: float
    wrong: Sequence[WrongKV]  # the first of each request in each component


class LoadPlanned(NamedTuple):
    """A request was admitted and waits for the load `job`, to continue after [0, length).

    `firm` units were taken for the load (none if it was in progress already); `demand` adds those that may follow.
    If a pool refused the units, `job` is 0, and [0, length) is the match on the device.
    """

    request_id: int
    length: int
    job: int
    firm: PoolCounts
    demand: PoolCounts


class Loaded(NamedTuple):
    """A load has ended, complete or not; its request continues after [0, length), on `pages` of the first component."""

    request_id: int
    length: int
    pages: Sequence[int]


# --- streaming sessions


class SessionOpened(NamedTuple):
    """A session was opened."""

    session: int
    namespace: int
    now_ms: int


class Lent(NamedTuple):
    """A turn continues after the first `length` tokens that its session kept, on `pages` of the first component."""

    session: int
    request_id: int
    length: int
    pages: Sequence[int]


class Kept(NamedTuple):
    """A turn ended, and its session keeps the KV of `length` tokens."""

    session: int
    request_id: int
    length: int


class GivenUp(NamedTuple):
    """A session released its KV: it was closed, its pages were needed, or its turn starts from the tree instead."""

    session: int
    cause: str


class TurnRefused(NamedTuple):
    """A request was refused as a turn: its session was not open, or had another turn."""

    session: int
    request_id: int


class SessionClosed(NamedTuple):
    """A session was closed, and has no further turns."""

    session: int


# --- draft tokens


class Proposed(NamedTuple):
    """A launched pass also computes draft tokens after the last known token of a request."""

    launch: int
    request_id: int
    drafts: Sequence[int]


class Verified(NamedTuple):
    """The model sampled `tokens`, behind the last known token and each draft, and accepts `num_accepted` drafts."""

    launch: int
    request_id: int
    num_accepted: int
    tokens: Sequence[int]


class GrammarRefused(NamedTuple):
    """The grammar of an answer got a token that it does not allow after the `num_accepted` ones before it."""

    request_id: int
    token: int
    num_accepted: int


# --- KV on its way from a prefill engine to a decode engine


class Reserved(NamedTuple):
    """The decode engine took `pages` for [prefix_len, length) of a request; [0, prefix_len) was cached there."""

    request_id: int
    prefix_len: int
    length: int
    pages: PoolCounts  # of a windowed pool only those that the next token reads


class Invited(NamedTuple):
    """The prefill engine may compute a prompt: the decode engine has reserved pages for all after [0, prefix_len)."""

    request_id: int
    prefix_len: int


class Sent(NamedTuple):
    """Pages of one pool were sent, from page index `first` of the prompt on."""

    request_id: int
    pool: str
    first: int
    pages: tuple[int, ...]


class HandedOver(NamedTuple):
    """A request ended in the prefill engine, which holds its record until the transfer of [0, length) has ended."""

    request_id: int
    length: int


class Filled(NamedTuple):
    """Reserved pages got their KV, from the transfer or from a copy set aside; `places` are their page indices."""

    request_id: int
    pool: str
    places: tuple[int, ...]
    pages: tuple[int, ...]
    checksums: tuple[int, ...] = ()  # as they came with the pages, or none


class TakenOver(NamedTuple):
    """[0, length) of a request and its output `tokens` so far have arrived; the request runs from now on."""

    request_id: int
    length: int
    tokens: tuple[int, ...]


class SetAside(NamedTuple):
    """A request in the decode engine released its pages; a copy of [0, length) is kept outside the pools."""

    request_id: int
    length: int


class LetGo(NamedTuple):
    """The record that was held for a transfer was released for this cause, whether or not the transfer is complete."""

    request_id: int
    cause: str


class PeerGaveUp(NamedTuple):
    """The other engine has given up a transfer, of which this one lacks KV; this one has read each message."""

    request_id: int


# --- a server, seen over HTTP


class Answered(NamedTuple):
    """A server has answered a request, with `num_tokens` of at most `max_new_tokens` tokens."""

    request_id: int  # 0: a request without a prompt, such as a flush
    status: int  # of HTTP; 0: the connection broke, or the answer is unreadable
    num_tokens: int
    max_new_tokens: int
    detail: str = ""  # text for people
    is_judge: bool = False  # the answer to the same request without the prefix cache
    passed_stop: str = ""  # a text that was to end the answer, which goes on behind it


class Rested(NamedTuple):
    """All requests are answered; the metrics show these requests and this share of KV in use (None: not shown)."""

    running: float | None
    waiting: float | None
    usage: float | None


class Probed(NamedTuple):
    """At rest, a cold prompt of `length` tokens was sent again, after the server had answered one when it was new."""

    length: int
    status: int  # of HTTP; 0: the connection broke
    preemptions: int  # that the server counted meanwhile


# --- for an engine's own observers: no invariant reads these, and the log of a run drops them


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


class CloseAsked(NamedTuple):
    """A client closed a session, which may be closed already, or is closed when its turn has ended."""

    session: int


class StepBegan(NamedTuple):
    now_ms: int


class StepEnded(NamedTuple):
    """A step has ended; its outputs are delivered next."""


class Rooted(NamedTuple):
    """A node with the tokens `key` is in the tree, behind `parent` (0: a root), and has no units yet."""

    node: int
    parent: int
    namespace: int
    key: Sequence[int]


class Uprooted(NamedTuple):
    """A node is no longer in the tree."""

    node: int


OF_OBSERVERS = frozenset({Submitted, AbortAsked, CloseAsked, StepBegan, StepEnded, Rooted, Uprooted})

OF_SERVERS = frozenset({Answered, Rested, Probed})

# A request releases its record.  So do the requests of a pass that Failed, and at Paused those with a record.
RECORD_RELEASES = (Finished, Retracted, RanOut, Preempted, GaveWay)

_RECORDS = frozenset(kind for kind in vars().values() if isinstance(kind, type) and hasattr(kind, "_fields"))
OF_STORIES = frozenset({LocksCounted, LockCount})
CHECKED = _RECORDS - OF_OBSERVERS - OF_STORIES - {Owner, WrongSlot}  # the types of events that invariants may read
ALL_EVENTS = frozenset(kind.__name__ for kind in CHECKED)  # for an engine that reports none or few of them
