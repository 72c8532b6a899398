"""The sentences of the laws of lifecycle."""

from collections.abc import Mapping

from invariants.laws.lifecycle.batches import BatchCode
from invariants.laws.lifecycle.priorities import PriorityCode
from invariants.laws.lifecycle.releases import ReleaseCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    BatchCode.REQUEST_TWICE: "computes {requests} twice",
    BatchCode.TOO_MANY_REQUESTS: "computes {count} requests, at most {most} may run",
    BatchCode.NO_TOKENS: "launch {launch} computes no token for it: [{start}, {end})",
    BatchCode.RESUMED_ELSEWHERE: "launch {launch} computes [{start}, {end}), but launched_len was {launched_len}",
    BatchCode.STARTED_ELSEWHERE: "launch {launch} computes [{start}, {end}), but it was admitted at {admitted_at}",
    BatchCode.NOT_ADMITTED: "launch {launch} computes [{start}, {end}), but it has no record and was not admitted",
    BatchCode.COMMITTED_OTHER_LEN: "committed_len is {committed_len}, but its last valid result ends at {want}",
    PriorityCode.PREEMPTION_IS_OFF: "preempted for {by}, but preemption is off",
    PriorityCode.VICTIM_NOT_RUNNING: "preempted for {by}, but it did not run",
    PriorityCode.PRIORITY_TOO_LOW: (
        "preempted for {by}, but its priority is {priority}, the other's {by_priority}, the threshold {threshold}"
    ),
    ReleaseCode.KEEPS_RECORD: "still has a record in row {row} after {after}",
    ReleaseCode.KEEPS_UNITS: "still owns {pool} {units} after {after}",
    ReleaseCode.STILL_QUEUED: "finished ({reason}), but it is {place}",
    ReleaseCode.VANISHED: "was in launch {launch}, which failed, and is gone without an end",
}
