"""The flight recorder of a scheduler that serves: its calls as an op-log that the adapter replays."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.core.oplog import Header
from harness.core.ops import Op, Submit
from harness.engines.sglang.boot import Release
from harness.engines.sglang.requests import Request, is_rejected
from harness.strict.private import OFF, record_mode
from harness.strict.recording import RecordedAbort, RecordedSubmit, Recording, Steps
from invariants.kinds import FinishReason

MAX_OPS = 100_000


class LiveRecorder:
    """Records from an empty cache on, which is at the start of the server or at a flush.

    A replay has a stand-in for the model. So a request that ends before its last new token is recorded as aborted in
    that turn, which frees its pages in the same way.
    """

    def __init__(self, release: Release, config: dict[str, Any], lost: Sequence[str]) -> None:
        self._header = Header(engine="sglang", version=release.text, configs=[config])
        self._recording = Recording(lambda: self._header, max_ops=MAX_OPS, mode=record_mode(os.environ))
        self._overlap: bool = config["overlap"]
        self._lost = lost
        self._aborted: set[int] = set()
        self._submitted: set[int] = set()
        self.restart()

    @property
    def is_on(self) -> bool:
        """Whether a log is written."""
        return self._recording.mode != OFF

    @property
    def truncated(self) -> str:
        return self._recording.truncated

    def save(self, fingerprint: str, out: Path) -> Path:
        return self._recording.save(fingerprint, out)

    def lose(self, kind: str) -> None:
        """Count a call that has no op."""
        self._recording.lost[kind] += 1

    def submitted(self, request: Request) -> None:
        """Record a request that enters the queue."""
        params, req = request.req.sampling_params, request.req
        if is_rejected(req):
            self.lose("requests that were rejected on arrival")
            return
        op = Submit(
            tokens=tuple(req.origin_input_ids),
            max_new_tokens=params.max_new_tokens,
            priority=getattr(req, "priority", None) or 0,
            namespace=request.namespace,
        )
        self._submitted.add(request.id)
        self._recording.append(RecordedSubmit(request.id, op))

    def aborted(self, request: Request) -> None:
        if request.id in self._submitted and request.id not in self._aborted:
            self._aborted.add(request.id)
            self._recording.append(RecordedAbort(request.id))

    def called(self, op: Op) -> None:
        self._recording.append(op)

    def turn_ended(self, ended: Sequence[Request]) -> None:
        for request in ended:
            if request.finish_reason != FinishReason.LENGTH:
                if len(request.req.output_ids) < 2 and request.id not in self._aborted and not self._overlap:
                    self.lose("requests that ended with their first token")
                self.aborted(request)
            self._aborted.discard(request.id)
            self._submitted.discard(request.id)
        self._recording.append(Steps(ended=[request.id for request in ended]))

    def restart(self) -> None:
        """The cache is empty, and there is no request."""
        self._recording.clear()
        for kind in self._lost:
            self.lose(kind)
