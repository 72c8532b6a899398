"""The queues of a disaggregated scheduler, and where a request is in them."""

from collections.abc import Iterable, Sequence
from typing import Any

import swarden.invariants.events as seen
from swarden.harness.engines.sglang.config import DECODE, PREFILL
from swarden.harness.engines.sglang.part import Core, SglangPart
from swarden.harness.kit.reported import names_of
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

    def frontier(self, freed: int, windowed: Sequence[int], page_size: int) -> int:
        """The length below which no windowed page is used: a decode side takes only those that the next token reads."""
        if self._mode != DECODE:
            return freed
        return max(freed, page_size * next((index for index, page in enumerate(windowed) if page), 0))

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


class SglangSide(SglangPart):
    """One side of a pair.  Only a decode side takes over requests.

    Its rejections are not reported, because it rejects a prompt by the windowed pages that it allocates for it.
    """

    def __init__(self, core: Core) -> None:
        is_decode = core.scheduler.disaggregation_mode.value == DECODE
        self.reported = names_of((seen.TakenOver, seen.Filled, seen.CopiedIn) if is_decode else ())
        self.unreported = names_of((seen.CacheReset, seen.Rejected) if is_decode else (seen.CacheReset,))


def _holds(queue: Iterable[Any], req: Any) -> bool:
    return any(one is req for one in queue)
