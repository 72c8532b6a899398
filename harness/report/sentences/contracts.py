"""The sentences of the contracts."""

from collections.abc import Mapping

from invariants.contracts.footprint import FootprintCode
from invariants.contracts.host_tier import HostTierCode
from invariants.contracts.window_locks import WindowLockCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
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
