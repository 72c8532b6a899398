"""The sentences of the contracts."""

from collections.abc import Mapping

from invariants.contracts.aborted_requests import AbortedRequestsCode
from invariants.contracts.admission import AdmissionCode
from invariants.contracts.chunk_budget import ChunkBudgetCode
from invariants.contracts.decode_reservations import DecodeReservationsCode
from invariants.contracts.drafting import DraftingCode
from invariants.contracts.eviction import EvictionCode
from invariants.contracts.fence_release import FenceReleaseCode
from invariants.contracts.footprint import FootprintCode
from invariants.contracts.host_tier import HostTierCode
from invariants.contracts.loads import LoadCode
from invariants.contracts.longest_match import LongestMatchCode
from invariants.contracts.naive_model import NaiveModelCode
from invariants.contracts.out_of_memory import OutOfMemoryCode
from invariants.contracts.overdue_requests import OverdueRequestsCode
from invariants.contracts.pairing import PairingCode
from invariants.contracts.preemption import PreemptionCode
from invariants.contracts.publishing import PublishingCode
from invariants.contracts.queue_order import QueueOrderCode
from invariants.contracts.ratio import RatioCode
from invariants.contracts.ratio_range import RatioRangeCode
from invariants.contracts.rejection import RejectionCode
from invariants.contracts.reservation import ReservationCode
from invariants.contracts.retracting_pause import RetractingPauseCode
from invariants.contracts.retraction import RetractionCode
from invariants.contracts.retries import RetryCode
from invariants.contracts.session_release import SessionReleaseCode
from invariants.contracts.single_chunk import SingleChunkCode
from invariants.contracts.state_pages import StatePagesCode
from invariants.contracts.window_locks import WindowLockCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    DecodeReservationsCode.TOO_MANY: "{taken} units of {pool} taken for {length} tokens, but {missing} are needed",
    DecodeReservationsCode.EMPTY_ENGINE_WAITS: "waits for pages, but the engine is empty",
    DecodeReservationsCode.OVERTAKEN: "waits for pages, but {by} got pages before it",
    LoadCode.BRINGS_TOO_MUCH: "loads {pages} pages of {pool}, but the window has {most}",
    LoadCode.RESERVED_OTHER_COUNT: "reserved {reserved} pages of {pool} for {load}, which loads {brings}",
    LoadCode.DEMAND_TOO_SMALL: "has a demand of {demand} pages of {pool}, but {load} alone loads {brings}",
    LoadCode.LOADED_FOR_NO_REQUEST: "no request waits for it",
    LoadCode.JOINED_TOO_SHORT: "lacks {lacks} pages of {pool}, but {load} loads {brings}",
    LoadCode.LOADED_BUT_UNUSED: "continues at {start}, but the prefix loaded for it has {loaded} tokens",
    LoadCode.COMPUTED_AGAIN: "admitted at {start}, but {cached} tokens are cached on the device and the host",
    PairingCode.CHANGED_ALONE: "its peer is {peer}, but it was last paired with {paired_with}",
    AbortedRequestsCode.STILL_SERVED: "aborted, but still {place}",
    FenceReleaseCode.FENCED_AFTER_COMPLETION: "still fenced after {launch} completed",
    FenceReleaseCode.FENCED_FOR_NO_LAUNCH: "fenced for {launch}, which is not in flight",
    FenceReleaseCode.LOCKED_AFTER_COMPLETION: "still held after {launch} completed",
    FenceReleaseCode.LOCKED_FOR_NO_LAUNCH: "held for {launch}, which is not in flight",
    OverdueRequestsCode.LATE: "{place} after {age_ms} ms, the timeout is {timeout_ms} ms",
    RatioRangeCode.BELOW_FLOOR: "{ratio} millionths, the floor is {floor}",
    RatioRangeCode.ABOVE_ONE: "{ratio} millionths, at most 1000000",
    RetractingPauseCode.RECORD_LEFT: "has a record in a pause, with row {row}",
    RetractingPauseCode.RECEIPT_LEFT: "held by {holder} in a pause",
    RetractingPauseCode.UNITS_LEFT: "owns {units} in a pause",
    SessionReleaseCode.KEEPS_ROW: "keeps row {row} without a turn",
    SessionReleaseCode.KEEPS_UNWRITTEN: (
        "keeps {committed_len} tokens with launched_len {launched_len}, allocated_len {allocated_len}: "
        "all must be equal"
    ),
    SessionReleaseCode.STILL_OPEN: "is to be closed and has no turn, but is still open",
    SingleChunkCode.SECOND_CHUNK: "between chunks, and so is {first}",
    StatePagesCode.NODE_LACKS_PAGES: "live in {component}, but lacks some of its pages (0: none): {pages}",
    StatePagesCode.KEPT_BELOW_FRONTIER: "still has {unit} for position {start}, below its frontier {frontier}",
    StatePagesCode.LAST_STATE_MISSING: "no {component} page for the state after its last token, at position {position}",
    WindowLockCode.TOMBSTONE_LOCKED: "a tombstone in {component}, but has {locks} locks there",
    WindowLockCode.TOO_MUCH_LOCKED: "locks {locked_len} tokens of {component}, but reads at most {most}",
    #
    FootprintCode.TOO_FAR_AHEAD: "allocated_len is {allocated_len}, at most {most} with launched_len {launched_len}",
    FootprintCode.TOO_FAR_BEHIND: "keeps {kept_len} tokens of {component}, at most {most}: "
    "committed_len was {committed_len}, frontier {frontier}",
    #
    HostTierCode.NO_COPY_OF_PREFIX: "the host has a copy of {component}, but none of its parent {parent}",
    HostTierCode.WINDOW_COPIED_ALONE: "the host has a copy, but none of {component}",
    HostTierCode.LIVE_BEHIND_A_TOMBSTONE: "live in {component}, but its parent {parent} is not",
    HostTierCode.DROPPED_NEEDLESSLY: "its copy was dropped, but the backup had enough free pages without it",
    HostTierCode.NOT_REPLACED: "its copy was dropped, but no backup followed",
    HostTierCode.REMOVED_UNCOPIED: "removed to free {short} pages, but the host has no copy of its {uncopied} pages",
    HostTierCode.TOMBSTONED_UNCOPIED: "lost its {short} pages, but the host has no copy of its {uncopied} pages",
    AdmissionCode.OTHER_RESERVATION: (
        "admitted for [{got_start}, {got_end}) with {got_firm} reserved (demand {got_demand}), "
        "the naive planner has [{want_start}, {want_end}) with {want_firm} reserved (demand {want_demand})"
    ),
    AdmissionCode.KEPT_WAITING: (
        "waits, but [{want_start}, {want_end}) fits with {want_firm} reserved (demand {want_demand})"
    ),
    AdmissionCode.DOES_NOT_FIT: (
        "admitted for [{got_start}, {got_end}) with {got_firm} reserved (demand {got_demand}), which does not fit"
    ),
    AdmissionCode.PLACE_LEFT_EMPTY: "waits, but it fits, and only {taken} of at most {places} requests are admitted",
    ChunkBudgetCode.EMPTY: "computes nothing",
    ChunkBudgetCode.PREFILLS_TOO_MUCH: "prefills {count} tokens, at most {most} are allowed",
    ChunkBudgetCode.COMPUTES_TOO_MUCH: "computes {count} tokens, decodes included, at most {most} are allowed",
    DraftingCode.NOT_BEHIND_ONE_TOKEN: (
        "{count} drafts in launch {launch}, behind its range [{start}, {end}) of the request; want one of one token"
    ),
    DraftingCode.RIGHT_DRAFT_REJECTED: "{accepted} of the drafts {drafts} are accepted, the model samples {sampled}",
    DraftingCode.VERDICT_NOT_AWAITED: (
        "launch {launch} computes [{start}, {end}), but the drafts of launch {drafted_in} are not verified"
    ),
    EvictionCode.STOPPED_EARLY: "needed {need}, freed {freed}, but {left} could still be evicted",
    EvictionCode.WINDOW_BEFORE_DEAD_INTERIOR: "evicted from {pool} although a branch reads it; no branch reads {dead}",
    EvictionCode.YOUNGER_BEFORE_OLDER: (
        "evicted from {pool}, last used at {last_used}, but {older} was last used at {older_last_used}"
    ),
    EvictionCode.BRANCH_LOST_ITS_WINDOW: (
        "no longer matches to its end, but {dead}, which no branch reads, keeps its {pool} pages"
    ),
    LongestMatchCode.TOO_SHORT: "matched {length} tokens, {usable} are usable",
    LongestMatchCode.WHOLE_KEY: "matched all {length} tokens, so none is left to compute",
    NaiveModelCode.DIFFERS: "the naive model has {expected}, the engine has {got}",
    OutOfMemoryCode.WOULD_FIT_ALONE: "aborted at {length} tokens, but its next token fits the pools alone",
    PreemptionCode.NOT_PREEMPTED: "fits only in place of {lesser} of lower priority, and none of these is preempted",
    PreemptionCode.PREEMPTOR_NOT_WAITING: "preempted for {by}, which did not wait",
    PreemptionCode.PREEMPTOR_NOT_ADMITTED: "preempted for {by}, which was not admitted afterwards",
    PreemptionCode.LESS_IMPORTANT_SPARED: "preempted, but {spared} of lower priority runs on",
    PublishingCode.SHARES_OTHER_LEN: "published [0, {end}), but shares {protected_len} tokens",
    PublishingCode.NOT_MATCHED: "published [0, {end}), but only {length} of {want} tokens match",
    QueueOrderCode.OVERTAKEN: (
        "admitted with priority {priority}, but {ahead} of priority {ahead_priority} is before it in the queue"
    ),
    RatioCode.OTHER_THAN_FORETOLD: "{before} before and {after} after the step, in millionths; permitted: {want}",
    RejectionCode.COULD_RUN: (
        "rejected, but {prompt_len} prompt tokens and {max_new_tokens} new tokens can run on an empty engine"
    ),
    RejectionCode.CANNOT_RUN: "queued with {prompt_len} prompt tokens and {max_new_tokens} new tokens, but {reason}",
    ReservationCode.EXCEEDED: "took {excess} more units of {pool} than were reserved",
    ReservationCode.RAN_OUT: "needs {want} reserved units of {pool}, but {free} are free",
    ReservationCode.OTHER_RANGE_LAUNCHED: (
        "launch {launch} computes [{start}, {end}), but it was admitted for [{want_start}, {want_end})"
    ),
    RetractionCode.ENOUGH_IS_FREE: "retracted, but the next decode step needs {need}, and {free} are free",
    RetractionCode.PASSES_HOLD_ENOUGH: "retracted for {pool}, but {count} of its units wait for passes in flight",
    RetractionCode.DEAD_PAGES_KEPT: (
        "retracted for {pool}, but {holder} keeps pages from {frontier} on, and its window starts at {dead_below}"
    ),
    RetractionCode.EVICTABLE_NODE_KEPT: "retracted for {pool}, but {node} could be evicted",
    RetractionCode.OTHER_LOSES_LESS: (
        "retracted with priority {priority}, {num_outputs} outputs, prompt_len {prompt_len}, but {least} loses less: "
        "priority {least_priority}, {least_num_outputs} outputs, prompt_len {least_prompt_len}"
    ),
    RetractionCode.NOT_COMPUTED: "runs, but no pass computes it after the retraction",
    RetryCode.MISCOUNTED: "{failures} passes with it have failed, {counted} are counted",
    RetryCode.RETRIED_TOO_OFTEN: "{failures} passes with it have failed, at most {most} may, but it is {place}",
    RetryCode.GIVEN_UP_EARLY: "finished as failed, but only {failures} passes with it have failed, and {most} may",
}
