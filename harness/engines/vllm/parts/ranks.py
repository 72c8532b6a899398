"""Data-parallel ranks of a model with experts, machine `dp`: each is an engine core, and one of them gets a request.

Real: `DPEngineCoreProc` with its loop, pauses and sleeps, its own scheduler and pool; the loop of `DPCoordinatorProc`.
Stand-in: sockets are queues in memory; the process group and a forward are meetings of all ranks; the front end sends a
call to all ranks, and the next one when all have answered; a prompt says to which rank it goes.
Shows: a rank that waits for ever, with the place of each; a forward while the memory is released; a coordinator that
says for ever that the ranks run.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from swarden.harness.engines.vllm.parts.drafts import Drafts
from swarden.harness.engines.vllm.parts.kv_events import KvEvents
from swarden.harness.engines.vllm.parts.mooncake import Mooncake
from swarden.harness.engines.vllm.parts.offload import Offload
from swarden.harness.engines.vllm.parts.pair import Pairing
from swarden.harness.engines.vllm.parts.part import VllmPart
from swarden.harness.engines.vllm.parts.states import States
from swarden.harness.engines.vllm.parts.store import Storing
from swarden.harness.engines.vllm.parts.streaming import Streaming
from swarden.harness.kit.part import off
from swarden.harness.kit.settings import Needs, within

REPORT_LATE, WAVE_LATE, CALL_LATE = "report.late", "wave.late", "call.late"
FAULTS = {
    REPORT_LATE: "what a rank tells the coordinator of its wave arrives some steps later",
    WAVE_LATE: "the coordinator's start of a wave arrives at a rank some steps later",
    CALL_LATE: "a request, an abort or a call arrives at a rank some steps later",
}


class RankGroup(VllmPart, frozen=True):
    """`ranks` are --data-parallel-size of a model with experts: so many engine cores."""

    ranks: Annotated[int, within(2, 8)] | None = None

    needs = (Needs("ranks", off(Pairing, States, Storing, Offload, Mooncake, Drafts, KvEvents, Streaming)),)
    server_need = "ranks"

    def faults(self, config: Any) -> Mapping[str, str]:
        return FAULTS

    def shape(self, config: Any) -> Mapping[str, Any]:
        return {"ranks": self.ranks, "differing": tuple(FAULTS)}
