"""The sentences of the contracts."""

from collections.abc import Mapping

from invariants.contracts.admission import AdmissionCode
from invariants.contracts.chunk_budget import ChunkBudgetCode
from invariants.contracts.drafting import DraftingCode
from invariants.contracts.eviction import EvictionCode
from invariants.contracts.longest_match import LongestMatchCode
from invariants.contracts.model import ModelCode
from invariants.contracts.out_of_memory import OutOfMemoryCode
from invariants.contracts.preemption import PreemptionCode
from invariants.contracts.publishing import PublishingCode
from invariants.contracts.queue_order import QueueOrderCode
from invariants.contracts.ratio import RatioCode
from invariants.contracts.rejection import RejectionCode
from invariants.contracts.reservation import ReservationCode
from invariants.contracts.retraction import RetractionCode
from invariants.contracts.retries import RetryCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    AdmissionCode.OTHER_RESERVATION: (
        "admitted for [{got_start}, {got_end}) with {got_firm} (demand {got_demand}), "
        "the planner has [{want_start}, {want_end}) with {want_firm} (demand {want_demand})"
    ),
    AdmissionCode.KEPT_WAITING: ("waits, but [{want_start}, {want_end}) fits with {want_firm} (demand {want_demand})"),
    AdmissionCode.DOES_NOT_FIT: (
        "admitted for [{got_start}, {got_end}) with {got_firm} (demand {got_demand}), which does not fit"
    ),
    AdmissionCode.SLOT_LEFT_EMPTY: "waits, but it fits, and only {taken} of {slots} slots are taken",
    ChunkBudgetCode.EMPTY: "computes nothing",
    ChunkBudgetCode.PREFILLS_TOO_MUCH: "prefills {count} tokens, at most {most} are allowed",
    ChunkBudgetCode.COMPUTES_TOO_MUCH: "prefills and computes {count} tokens, at most {most} are allowed",
    DraftingCode.NOT_BEHIND_ONE_TOKEN: "{count} drafts in launch {launch}, which computes [{start}, {end})",
    DraftingCode.RIGHT_DRAFT_REJECTED: "{accepted} of the drafts {drafts} are accepted, the model samples {sampled}",
    DraftingCode.VERDICT_NOT_AWAITED: (
        "launch {launch} computes [{start}, {end}), but the drafts of launch {drafted_in} are not judged"
    ),
    EvictionCode.STOPPED_EARLY: "needed {need}, freed {freed}, but {left} could still be evicted",
    EvictionCode.WINDOW_BEFORE_DEAD_INTERIOR: "evicted from {pool} though a branch reads it; none reads {dead}",
    EvictionCode.YOUNGER_BEFORE_OLDER: (
        "evicted from {pool}, last used at {last_used}, but {older} was last used at {older_last_used}"
    ),
    EvictionCode.BRANCH_LOST_ITS_WINDOW: (
        "does not match to its end any more, but {dead}, read by no branch, keeps its {pool} pages"
    ),
    LongestMatchCode.TOO_SHORT: "matched {length} tokens, {usable} are usable",
    LongestMatchCode.WHOLE_KEY: "matched all {length} tokens, so none is left to compute",
    ModelCode.DIFFERS: "the model has {expected}, the engine {got}",
    OutOfMemoryCode.WOULD_FIT_ALONE: "aborted at {length} tokens, but its next token fits the pools alone",
    PreemptionCode.NOT_PREEMPTED: "waits for a row alone, but {lesser} of lower priority goes on",
    PreemptionCode.PREEMPTOR_NOT_WAITING: "preempted for {by}, which did not wait",
    PreemptionCode.PREEMPTOR_NOT_ADMITTED: "preempted for {by}, which was not admitted afterwards",
    PreemptionCode.LESS_IMPORTANT_SPARED: "preempted, but {spared} of lower priority goes on",
    PublishingCode.SHARES_OTHER_LEN: "published [0, {end}), but shares {protected_len} tokens",
    PublishingCode.NOT_MATCHED: "published [0, {end}), but only {length} of {want} tokens match",
    QueueOrderCode.OVERTAKEN: (
        "admitted with priority {priority}, but {ahead} of priority {ahead_priority} is before it in the queue"
    ),
    RatioCode.OTHER_THAN_FORETOLD: "went from {before} to {after} millionths, want {want}",
    RejectionCode.COULD_RUN: "rejected, but {prompt_len} and at most {max_new_tokens} tokens fit an empty engine",
    RejectionCode.CANNOT_RUN: "queued with {prompt_len} and at most {max_new_tokens} tokens, but {reason}",
    ReservationCode.EXCEEDED: "took {excess} of {pool} more than were reserved",
    ReservationCode.RAN_OUT: "{want} of {pool} were reserved, {free} were free",
    ReservationCode.OTHER_RANGE_LAUNCHED: (
        "launch {launch} computes [{start}, {end}), but it was admitted for [{want_start}, {want_end})"
    ),
    RetractionCode.ENOUGH_IS_FREE: "retracted, but the next decode step needs {need}, and {free} are free",
    RetractionCode.PASSES_HOLD_ENOUGH: "retracted for {pool}, but {count} of its units wait for passes in flight",
    RetractionCode.DEAD_PAGES_KEPT: (
        "retracted for {pool}, but {holder} keeps its dead pages up to {dead_below}, frontier {frontier}"
    ),
    RetractionCode.EVICTABLE_NODE_KEPT: "retracted for {pool}, but {node} could be evicted",
    RetractionCode.OTHER_LOSES_LESS: (
        "retracted with priority {priority}, {num_outputs} outputs, prompt_len {prompt_len}, but {least} loses less: "
        "priority {least_priority}, {least_num_outputs} outputs, prompt_len {least_prompt_len}"
    ),
    RetractionCode.NOT_COMPUTED: "runs, but no pass computes it after the retraction",
    RetryCode.MISCOUNTED: "{failures} passes with it have failed, {counted} are counted",
    RetryCode.RETRIED_TOO_OFTEN: "{failures} passes with it have failed, at most {most} may, but it is {place}",
    RetryCode.GIVEN_UP_EARLY: "given up, but only {failures} passes with it have failed, and {most} may",
}
