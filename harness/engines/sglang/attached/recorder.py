"""What the flight recorder records of a scheduler of SGLang.

A replay has a stand-in for the model. So a request that ends before its last new token is recorded as aborted in that
turn, which frees its pages in the same way.
"""

from collections.abc import Sequence

from swarden.harness.core.ops import Submit
from swarden.harness.engines.foreign.attached.recorder import LiveRecorder
from swarden.harness.engines.sglang.requests import SglangRequest, is_rejected
from swarden.invariants.events import FinishReason


def record_submission(recorder: LiveRecorder, request: SglangRequest) -> None:
    """Record a request that enters the queue."""
    params, req = request.req.sampling_params, request.req
    if is_rejected(req):
        recorder.lose("requests that were rejected on arrival")
        return
    op = Submit(
        tokens=tuple(req.origin_input_ids),
        max_new_tokens=params.max_new_tokens,
        priority=getattr(req, "priority", None) or 0,
        namespace=request.namespace,
    )
    recorder.submitted(request.id, op)


def record_turn(recorder: LiveRecorder, ended: Sequence[SglangRequest], *, overlap: bool) -> None:
    """Record a turn of the event loop, with the requests that ended in it."""
    for request in ended:
        if request.finish_reason != FinishReason.LENGTH:
            if len(request.req.output_ids) < 2 and not recorder.is_aborted(request.id) and not overlap:
                recorder.lose("requests that ended with their first token")
            recorder.aborted(request.id)
    recorder.turn_ended([request.id for request in ended])
