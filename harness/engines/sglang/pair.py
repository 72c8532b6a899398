"""A prefill and a decode scheduler of one release, linked: their systems, and the port of one side."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.linked import LinkedSystem
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.sglang.adapter import SglangEngine
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.memory import set_environment
from swarden.harness.engines.sglang.parts.connector import SAME_ROOM
from swarden.harness.engines.sglang.parts.link import TIMEOUT_POLLS, SglangLink, TransferMemory
from swarden.harness.engines.sglang.parts.mooncake import MooncakeLink
from swarden.harness.engines.sglang.parts.nixl import NixlLink
from swarden.harness.engines.sglang.parts.pair import TransferQueues
from swarden.harness.engines.sglang.pools import sub_pools
from swarden.harness.kit.lockstep import LockstepThread
from swarden.harness.kit.ranks import Ranks
from swarden.harness.kit.tags import TagMemory
from swarden.invariants.events import HANDOVER_KIND, Owner
from swarden.invariants.kinds import Place
from swarden.invariants.view import Snapshot

# The parts of a release that the link builds on.
NEEDED = ("KVArgs", "KVClassType", "KVPoll", "FakeKVManager", "FakeKVSender", "FakeKVReceiver", "DecodeReqToTokenPool")


class LinkedSglangEngine(SglangEngine):
    """One side of a pair. A release has global server arguments, so each call makes those of this side current."""

    forks = False

    def __init__(self, release: SglangRelease, config: SglangConfig, link: SglangLink) -> None:
        self._link = link
        SglangLink.current = None
        super().__init__(release, config)
        has_contexts = release.code("use_context") is not None
        self._context = copy(release.code("get_context")()) if has_contexts else None  # with the published arguments
        if self._context is not None:
            self._context.parallel = copy(self._context.parallel)  # which have the limit of a batch
        scheduler, tags = self.scheduler, self.forward.tags
        self._queues = TransferQueues(scheduler)
        self.requests.awaits_kv = self._queues.awaits_kv
        end = TransferMemory(tags, scheduler.disagg_metadata_buffers, self.faults, self.log.notice)
        if not config.side.is_decode:
            link.prefill, queue = end, scheduler.disagg_prefill_bootstrap_queue
        else:
            link.decode, queue = end, scheduler.disagg_decode_prealloc_queue
            scheduler.disagg_decode_transfer_queue.deferred_kv_release_timeout = link.release_timeout_s
            pool = self.memory.allocator.get_kvcache()
            for index, part in enumerate(sub_pools(pool)):
                part.get_cpu_copy = partial(_offload, release, tags[index])
                part.load_cpu_copy = partial(self._restore, index)
        queue.kv_manager.link = link

    def snapshot(self) -> Snapshot:
        """The snapshot, with the pages that each transfer awaits, and the transfers that this step must take over.

        A page is awaited from when the release has named it to the prefill side until it has noted its arrival.  Each
        step takes over the transfers that have arrived (process_decode_queue), also if the batch is full, but none
        while a retracted request waits for pages.
        """
        snapshot, awaited, due = super().snapshot(), dict[int, tuple[Sequence[int], ...]](), set[int]()
        if not self.config.side.is_decode:
            return snapshot
        scheduler = self.scheduler
        takes_over = not scheduler.disagg_decode_prealloc_queue.retracted_queue
        for transfer in scheduler.disagg_decode_transfer_queue.queue:
            room, number = self._link.rooms[transfer.req.bootstrap_room], transfer.req.swarden.id
            if room.wanted is not None:
                awaited[number] = room.wanted[: len(snapshot.components)]
                has_all = self._link.has_all(transfer.req.bootstrap_room) and not self._queues.restored(transfer.req)
                if takes_over and has_all:
                    due.add(number)
        return replace(snapshot, awaited=awaited, due_transfers=frozenset(due))

    @property
    def has_work(self) -> bool:
        return super().has_work or bool(self._queues.held) or self._link.has_work(is_decode=self.config.side.is_decode)

    def awaits_another(self) -> bool:
        """Whether every unfinished request waits for the other side, for late pages, or for the pages that it needs."""
        if self._link.has_late_pages:
            return True
        return all(self._queues.place(request.req) == Place.LINKED for request in self.requests.unfinished.values())

    def submit(self, submission: Submission) -> int:
        link, is_decode = self._link, self.config.side.is_decode
        is_repeated = bool(link.rooms) and SAME_ROOM in self.faults.known and self.faults.fires(SAME_ROOM)
        if not is_decode and not is_repeated:
            link.room(len(link.rooms) + 1)
        submission = submission._replace(transfer_id=len(link.rooms))
        with self._current():
            request_id = super().submit(submission)
        if is_decode:
            room = link.room(submission.transfer_id)
            if room.request_id not in self.requests.unfinished:  # else a room used twice stays that of the first one
                room.request_id = request_id
        return request_id

    def abort(self, request_id: int) -> None:
        with self._current():
            super().abort(request_id)

    def step(self) -> Sequence[Streamed]:
        self._link.begin_step(is_decode=self.config.side.is_decode)
        with self._current():
            return super().step()

    def pause(self) -> bool:
        """A decode side has no pause: its requests would be computed again through the prefill side's HTTP server."""
        if self.config.side.is_decode:
            return False
        with self._current():
            return super().pause()

    def _restore(self, pool: int, copies: Any, indices: Any, *args: Any, **kwargs: Any) -> None:
        """Write the tags of a retracted request back; the release names the slots, but not the request."""
        self.forward.notice_copied(pool, indices.tolist(), Owner(HANDOVER_KIND))
        self.forward.tags[pool].write(indices.tolist(), copies[0][0][0].tolist())

    def _current(self) -> AbstractContextManager[Any]:
        """The arguments of this side are the current ones within the context.

        A release without contexts publishes them, which takes milliseconds, so a side that is current does not do it.
        """
        release = self.release
        if SglangLink.current is not self.config:
            set_environment(self.config)
            SglangLink.current = self.config
            if self._context is None:
                release.code("publish_server_args")(self.scheduler.server_args)
        return nullcontext() if self._context is None else release.code("use_context")(self._context)


class LinkedSglangSystem(LinkedSystem):
    """One side of a pair; the prefill side ignores stop tokens."""

    def prefill_of(self, submission: Submission) -> Submission:
        return super().prefill_of(submission)._replace(stop=())


def side_systems(
    release: SglangRelease, configs: Sequence[SglangConfig], links: list[SglangLink] | None = None
) -> Sequence[LinkedSystem]:
    """The two linked sides of a pair: prefill, then decode; raises InvalidConfig if the release has no such sides.

    Their link is added to those of the other ranks.
    """
    if absent := [name for name in NEEDED if release.code(name) is None]:
        raise InvalidConfig(f"sglang {release.text} has no {', '.join(absent)}, so it has no machine pd")
    if Ranks.running() == 0:
        LockstepThread.end_all()
    page_size, sides = configs[0].shape.page_size, list[LinkedSystem]()
    kinds = [kind for kind in (MooncakeLink, NixlLink) if kind.backend == configs[0].connector.connector]
    link = kinds[0](page_size) if kinds else SglangLink(page_size, links)
    for config in configs:
        sides.append(LinkedSglangSystem(LinkedSglangEngine(release, config, link), sides, patience=2 * TIMEOUT_POLLS))
    sessions = [side.port.sessions for side in sides if side.port.sessions is not None]
    for name in ("open_session", "close_session"):
        calls = [getattr(of_side, name) for of_side in sessions]
        for of_side in sessions:
            setattr(of_side, name, partial(_on_both, calls))
    return sides


def _on_both(calls: Sequence[Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
    """A session is open on both sides, with one number."""
    return [call(*args, **kwargs) for call in calls][-1]


def _offload(release: SglangRelease, memory: TagMemory, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """The copy of a retracted request's tags: per layer and chunk, its keys and its values."""
    copy = release.torch.tensor(memory.read(indices.tolist()), dtype=release.torch.int64)
    return [[[copy, copy]]]
