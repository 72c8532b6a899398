"""The sentences of the laws of lifecycle."""

from collections.abc import Mapping

from invariants.laws.lifecycle.batches import BatchCode
from invariants.violation import Code

SENTENCES: Mapping[Code, str] = {
    BatchCode.REQUEST_TWICE: "computes {requests} twice",
    BatchCode.TOO_MANY_REQUESTS: "computes {count} requests, at most {most} may run",
    BatchCode.NO_TOKENS: "launch {launch} computes no token for it: [{start}, {end})",
    BatchCode.RESUMED_ELSEWHERE: "launch {launch} computes [{start}, {end}), but launched_len was {launched_len}",
    BatchCode.STARTED_ELSEWHERE: "launch {launch} computes [{start}, {end}), but it was admitted at {admitted_at}",
    BatchCode.NOT_ADMITTED: "launch {launch} computes [{start}, {end}), but it has no record and was not admitted",
    BatchCode.COMMITTED_OTHER_LEN: "committed_len is {committed_len}, but its last valid result ends at {want}",
}
