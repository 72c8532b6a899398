"""The queues of a disaggregated scheduler, and where a request is in them."""

from typing import Any

from harness.engines.sglang.config import DECODE, PREFILL
from invariants.kinds import Place


class TransferQueues:
    """The queues of a prefill or a decode side; a scheduler that is both has none."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._mode = scheduler.disaggregation_mode.value

    def place(self, req: Any) -> Place | None:
        """The place of a request that is in one of these queues; on a decode side a waiting request has its KV."""
        if any(req is one for one in self._linked()):
            return Place.LINKED
        if self._mode == DECODE and any(req is one for one in self._scheduler.waiting_queue):
            return Place.RUNNING
        if self._mode == DECODE and any(req is one for one in self._prealloc.retracted_queue):
            return Place.WAITING
        return None

    def is_arriving(self, req: Any) -> bool:
        """Whether a request of a decode side has pages, but its KV has not arrived."""
        return self._mode == DECODE and any(req is one.req for one in self._scheduler.disagg_decode_transfer_queue.queue)

    def awaits_kv(self, req: Any) -> bool:
        """Whether the KV of a request of a decode side has not arrived, or was set aside by a retraction."""
        return self._mode == DECODE and (
            self.is_arriving(req) or any(req is one for one in self._prealloc.retracted_queue)
        )

    @property
    def _prealloc(self) -> Any:
        return self._scheduler.disagg_decode_prealloc_queue

    def _linked(self) -> list[Any]:
        """The requests that wait for the other side."""
        scheduler = self._scheduler
        if self._mode == PREFILL:
            return [*scheduler.disagg_prefill_bootstrap_queue.queue, *scheduler.disagg_prefill_inflight_queue]
        if self._mode == DECODE:
            return [one.req for one in (*self._prealloc.queue, *scheduler.disagg_decode_transfer_queue.queue)]
        return []
