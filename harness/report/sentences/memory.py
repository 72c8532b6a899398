"""The sentences of the laws of memory."""

from collections.abc import Mapping

from invariants.laws.memory.counters import CounterCode
from invariants.laws.memory.cursors import CursorCode
from invariants.laws.memory.eviction_counts import EvictionCountCode
from invariants.laws.memory.host import HostCode
from invariants.laws.memory.kv_events import EventCode
from invariants.laws.memory.locks import LockCode, ReceiptCode
from invariants.laws.memory.moves import MoveCode
from invariants.laws.memory.peers import PeerCode
from invariants.laws.memory.pools import PoolCode
from invariants.laws.memory.tables import TableCode
from invariants.laws.memory.tree import TreeCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    PoolCode.OUT_OF_RANGE: "owned by {owners}, but ids run from 1 to {last}",
    PoolCode.LEAKED: "no owner",
    PoolCode.FREE_TWICE: "free twice: {owners}",
    PoolCode.FREE_IN_USE: "owned by {owners}",
    PoolCode.OWNED_TWICE: "owned by {owners}",
    PoolCode.TOO_MANY: "{terms}",
    PoolCode.TOO_FEW: "{terms}",
    #
    MoveCode.OUT_OF_RANGE: "{move} by {by}, but ids run from 1 to {last}",
    MoveCode.TAKEN_IN_USE: "taken by {by}, but its owner was {owner}",
    MoveCode.GIVEN_BY_ANOTHER: "given by {by} to {to}, but its owner was {owner}",
    MoveCode.FREED_BY_ANOTHER: "freed by {by} ({cause}), but its owner was {owner}",
    MoveCode.FREED_TWICE: "freed by {by} ({cause}), but it was free already",
    MoveCode.KEPT_AFTER_REFUSAL: "refused {want} units of {pool}, but kept {kept}",
    MoveCode.WRITTEN_PADDING: "padding, written for positions [{start}, {end}) of {request}",
    MoveCode.WRITTEN_BY_ANOTHER: "written for positions [{start}, {end}) of {request}, but its owner was {owner}",
    MoveCode.REMOVED_UNDER_LOCK: "removed for {component} pages, but locked by {holder}",
    MoveCode.DEMOTED_UNDER_LOCK: "demoted for {component} pages, but locked by {holder}",
    MoveCode.TOMBSTONED_UNDER_LOCK: "lost its {component} pages, but locked by {holder}",
    #
    PeerCode.PEER_FREE: "its peer {peer} is free",
    PeerCode.PEER_FENCED: "its peer {peer} is fenced",
    PeerCode.PEER_OF_TWO: "the peer of both {units}",
    PeerCode.PAIRED_WHILE_FREE: "free, but its peer is {peer}",
    PeerCode.PAIRED_WHILE_FENCED: "fenced, but its peer is {peer}",
    PeerCode.PEER_OF_NONE: "owned by {owner}, but the peer of no unit of {from_pool}",
    PeerCode.OWNERS_DIFFER: "owned by {owner}, but its peer {peer} is owned by {peer_owner}",
    PeerCode.SLOTS_SCATTERED: "the peers of its slots are {slots}, not all in {peer} at the same offset",
    #
    CounterCode.FREE_MISCOUNTED: "the engine counts {counted} free units, there are {actual}",
    CounterCode.EVICTABLE_MISCOUNTED: "the engine counts {counted} evictable pages, there are {actual}",
    CounterCode.PROTECTED_MISCOUNTED: "the engine counts {counted} protected pages, there are {actual}",
    #
    TreeCode.ID_TWICE: "two nodes have this id",
    TreeCode.PARENT_GONE: "its parent {parent} is not in the tree",
    TreeCode.GAP: "begins at position {start}, but its parent ends at {parent_end}",
    TreeCode.OTHER_NAMESPACE: "in namespace {namespace}, but its parent is in {of_parent}",
    TreeCode.PARTIAL_PAGE: "has a key of {key_len} tokens, want whole pages of {page_size}",
    TreeCode.WRONG_PAGE_COUNT: "has {pages} {component} pages for {key_len} tokens",
    TreeCode.TWIN: "begins with the same page as its sibling {sibling}",
    TreeCode.TOMBSTONE_WITHOUT_WINDOW: "a tombstone in {component}, which has no window; no copy is on the host",
    TreeCode.LIVE_WITHOUT_PAGES: "live in {component}, but not all of its pages exist (0: none): {pages}",
    TreeCode.TOMBSTONE_WITH_PAGES: "a tombstone in {component}, but has the pages {pages}",
    TreeCode.PARTIAL_COPY: "has the pages {copies} on the host for {want} of {component}",
    #
    LockCode.TOO_MANY_LOCKS: "has {locks} {component} locks, but {receipts} receipts cover it",
    LockCode.TOO_FEW_LOCKS: "has {locks} {component} locks, but {receipts} receipts cover it",
    LockCode.TOO_MANY_READERS: "counts {counted} readers, but {tables} tables name it",
    LockCode.TOO_FEW_READERS: "counts {counted} readers, but {tables} tables name it",
    LockCode.PARENT_LOCKED_LESS: "has {locks} {component} locks, but its parent {parent} has {parent_locks}",
    LockCode.WINDOW_LOCKED_MORE: "has {locks} {window} locks, but {whole_locks} {whole} locks",
    ReceiptCode.MISSING: "shares {shared_len} tokens without a receipt",
    ReceiptCode.OF_TWO: "has receipt {receipt}, which is also that of {other}",
    ReceiptCode.NOT_OUT: "has receipt {receipt}, which was returned or does not exist",
    ReceiptCode.OF_ANOTHER: "has receipt {receipt}, which {holder} holds",
    ReceiptCode.LOST: "held by {holder}, which has no record with it",
    LockCode.DIED_UNDER_LOCK: "lost its {component} pages, but is locked by {holder}",
    LockCode.READ_WITHOUT_LOCK: "reads {node}, which receipt {receipt} does not cover in {component}",
    #
    CursorCode.OUT_OF_ORDER: "protected_len {protected_len}, committed_len {committed_len}, "
    "launched_len {launched_len}, allocated_len {allocated_len}",
    CursorCode.FRONTIER_OUT_OF_RANGE: "frontier {frontier}, allocated_len {allocated_len}",
    CursorCode.IN_FLIGHT_DIFFERS: "committed_len {committed_len}, launched_len {launched_len}, "
    "but the positions in flight (start, end) are {in_flight}",
    CursorCode.SHARES_PART_OF_A_PAGE: "protected_len {protected_len} is inside a {component} page of {page_size}",
    CursorCode.FRONTIER_INSIDE_A_PAGE: "frontier {frontier} is inside a {component} page of {page_size}",
    CursorCode.FRONTIER_IN_WINDOW: "frontier {frontier}, but position {position} reads {component} from {most} on",
    #
    TableCode.BEYOND_THE_ROW: "allocated_len {allocated_len}, but a row has only pages for {max_context_len} tokens",
    TableCode.WRONG_PAGE_COUNT: "has {pages} {component} pages for allocated_len {allocated_len}",
    TableCode.STALE_ROW: "row {row} names page {named} at page index {index}, the record has page {held}",
    TableCode.SHARES_NO_NODE: "protected_len {protected_len}, but it shares no node",
    TableCode.SHARES_ANOTHER_LENGTH: "protected_len {protected_len}, but {node} ends at {end}",
    TableCode.NOT_ON_THE_PATH: "at page index {index} of {record}, but the tree has page {cached} there",
    TableCode.PAGE_MISSING: "no {component} page for positions [{start}, {end})",
    TableCode.KEPT_BELOW_FRONTIER: "still has {unit} for position {start}, below its frontier {frontier}",
    TableCode.LAST_PAGE_MISSING: "no {component} page for its last token, at position {position}",
    TableCode.IN_TWO_COMPONENTS: "in the tables of {records}, in components {components}, at page indices {indices}",
    TableCode.IN_TWO_PLACES: "in the tables of {records}, at page indices {indices}",
    TableCode.PRIVATE_OF_TWO: "in the tables of {records}, shared by neither",
    #
    HostCode.PREFIX_GONE: "cached in {component}, but its parent {parent} is neither on the device nor on the host",
    HostCode.WINDOW_ALONE: "cached, but its {component} pages are neither on the device nor on the host",
    HostCode.NO_RECEIPT: "has no lock of its own: receipt {receipt} was returned, or belongs to another holder",
    HostCode.READ_AFTER_FREE: "read by {job}, but its owner is {owner}",
    HostCode.WRITTEN_AFTER_FREE: "written by {job}, but its owner is {owner}",
    HostCode.TOO_FEW_PINS: "has {pins} pins on its {pool} pages, but {loads} loads read them",
    HostCode.TOO_MANY_PINS: "has {pins} pins on its {pool} pages, but {loads} loads read them",
    #
    EventCode.NOT_REPORTED: "the cache gained {gained} units (below 0: lost), but its KV events report {reported}",
    EventCode.REPORTED_NOT_DONE: "the cache gained {gained} units (below 0: lost), but its KV events report {reported}",
    EventCode.NOT_INSERTED: "got its {component} units, but nothing was inserted or loaded",
    EventCode.NOT_RECOVERED: "a tombstone got its {component} units, but has not recovered",
    EvictionCountCode.CLAIMED_TOO_MANY: "an eviction reports {claimed} freed units, but the tree freed {freed}",
}
