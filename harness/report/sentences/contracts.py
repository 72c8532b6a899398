"""The sentences of the contracts."""

from collections.abc import Mapping

from invariants.contracts.decode_reservations import DecodeReservationsCode
from invariants.contracts.footprint import FootprintCode
from invariants.contracts.host_tier import HostTierCode
from invariants.contracts.loads import LoadCode
from invariants.contracts.prompt_aborts import PromptAbortsCode
from invariants.contracts.prompt_fences import PromptFencesCode
from invariants.contracts.prompt_timeouts import PromptTimeoutsCode
from invariants.contracts.ratio_range import RatioRangeCode
from invariants.contracts.retracting_pause import RetractingPauseCode
from invariants.contracts.session_release import SessionReleaseCode
from invariants.contracts.single_chunk import SingleChunkCode
from invariants.contracts.window_locks import WindowLockCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    DecodeReservationsCode.TOO_MANY: "{taken} of {pool} taken for {length} tokens, but {missing} are missing",
    DecodeReservationsCode.EMPTY_ENGINE_WAITS: "waits for pages of an empty engine",
    DecodeReservationsCode.OVERTAKEN: "waits for pages, but {by} got some",
    LoadCode.BRINGS_TOO_MUCH: "brings {pages} pages of {pool}, but {most} are read",
    LoadCode.RESERVED_OTHER_COUNT: "reserved {reserved} pages of {pool} for {load}, which brings {brings}",
    LoadCode.DEMAND_TOO_SMALL: "has a demand of {demand} pages of {pool}, but {load} alone brings {brings}",
    LoadCode.LOADED_FOR_NO_REQUEST: "begun for no request",
    LoadCode.JOINED_TOO_SHORT: "lacks {lacks} pages of {pool}, but {load} brings {brings}",
    LoadCode.LOADED_BUT_UNUSED: "goes on from {start}, but {loaded} tokens were loaded for it",
    LoadCode.COMPUTED_AGAIN: "admitted at {start}, but with the host {cached} tokens are cached",
    PromptAbortsCode.STILL_SERVED: "aborted, but {place}",
    PromptFencesCode.FENCED_AFTER_COMPLETION: "still fenced after {launch} completed",
    PromptFencesCode.FENCED_FOR_NO_LAUNCH: "fenced for {launch}, which is not in flight",
    PromptFencesCode.LOCKED_AFTER_COMPLETION: "still held after {launch} completed",
    PromptFencesCode.LOCKED_FOR_NO_LAUNCH: "held for {launch}, which is not in flight",
    PromptTimeoutsCode.LATE: "{place} after {age_ms} ms, the timeout is {timeout_ms} ms",
    RatioRangeCode.BELOW_FLOOR: "{ratio} millionths, the floor is {floor}",
    RatioRangeCode.ABOVE_ONE: "{ratio} millionths, at most 1000000",
    RetractingPauseCode.RECORD_LEFT: "has row {row} in a pause",
    RetractingPauseCode.RECEIPT_LEFT: "held by {holder} in a pause",
    RetractingPauseCode.UNITS_LEFT: "owns {units} in a pause",
    SessionReleaseCode.KEEPS_ROW: "keeps row {row} without a turn",
    SessionReleaseCode.KEEPS_UNWRITTEN: (
        "keeps {committed_len} tokens with launched_len {launched_len}, allocated_len {allocated_len}"
    ),
    SessionReleaseCode.STILL_OPEN: "to be closed, has no turn, but is still open",
    SingleChunkCode.SECOND_CHUNK: "between chunks, and so is {first}",
    WindowLockCode.TOMBSTONE_LOCKED: "a tombstone in {component}, but has {locks} locks there",
    WindowLockCode.TOO_MUCH_LOCKED: "locks {locked_len} tokens of {component}, but reads at most {most}",
    #
    FootprintCode.TOO_FAR_AHEAD: "allocated_len {allocated_len}, launched_len {launched_len}, at most {most}",
    FootprintCode.TOO_FAR_BEHIND: "keeps {kept_len} tokens of {component}, at most {most}: "
    "committed_len was {committed_len}, frontier {frontier}",
    #
    HostTierCode.NO_COPY_OF_PREFIX: "the host has a copy of {component}, but none of {parent} before it",
    HostTierCode.WINDOW_COPIED_ALONE: "the host has a copy, but none of {component}",
    HostTierCode.LIVE_BEHIND_A_TOMBSTONE: "live in {component}, but {parent} before it is not",
    HostTierCode.DROPPED_NEEDLESSLY: "its copy was dropped, but the backup in its place had enough free pages without",
    HostTierCode.NOT_REPLACED: "its copy was dropped, but no backup took its place",
    HostTierCode.REMOVED_UNCOPIED: "removed for {short} pages, but the host has no copy of its {uncopied} pages",
    HostTierCode.TOMBSTONED_UNCOPIED: "gave up its {short} pages, but the host has no copy of its {uncopied} pages",
}
