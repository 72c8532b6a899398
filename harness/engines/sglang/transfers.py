"""The queues of a disaggregated scheduler, and where a request is in them."""

from collections.abc import Iterable
from typing import Any

from swarden.harness.engines.sglang.config import DECODE, PREFILL
from swarden.invariants.kinds import Place


class TransferQueues:
    """The queues of a prefill or a decode side; a scheduler that is both has none."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._mode = scheduler.disaggregation_mode.value

    def place(self, req: Any) -> Place | None:
        """The place of a request that is in one of these queues."""
        if self._mode not in (PREFILL, DECODE):
            return None
        if _holds(self._retracted, req):
            return Place.WAITING
        return Place.LINKED if _holds(self._linked, req) or self.is_arriving(req) else None

    def is_arriving(self, req: Any) -> bool:
        """Whether a request of a decode side has pages, but has not run on them."""
        if self._mode != DECODE:
            return False
        scheduler = self._scheduler
        arriving = (one.req for one in scheduler.disagg_decode_transfer_queue.queue)
        return _holds(arriving, req) or _holds(scheduler.waiting_queue, req)

    @property
    def held(self) -> list[Any]:
        """The requests of a decode side whose transfer was aborted, but whose pages may still be written."""
        queue = self._scheduler.disagg_decode_transfer_queue if self._mode == DECODE else None
        return [entry[0].req for entry in getattr(queue, "_deferred_releases", ())]

    def awaits_kv(self, req: Any) -> bool:
        """Whether a request of a decode side has not run on its KV, or its KV was set aside by a retraction."""
        return self.is_arriving(req) or _holds(self._retracted, req)

    @property
    def _retracted(self) -> Iterable[Any]:
        return self._scheduler.disagg_decode_prealloc_queue.retracted_queue if self._mode == DECODE else ()

    @property
    def _linked(self) -> Iterable[Any]:
        """The requests that wait for the other side, and have no pages that are not written yet."""
        scheduler = self._scheduler
        if self._mode == PREFILL:
            return [*scheduler.disagg_prefill_bootstrap_queue.queue, *scheduler.disagg_prefill_inflight_queue]
        return [one.req for one in scheduler.disagg_decode_prealloc_queue.queue] if self._mode == DECODE else ()


def _holds(queue: Iterable[Any], req: Any) -> bool:
    return any(one is req for one in queue)
