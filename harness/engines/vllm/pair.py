"""A prefill and a decode core of one release, linked by its NIXL connector: their systems, and the port of one side."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.linked import LinkedSystem
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.vllm.adapter import VllmEngine
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.capture import WAITS_FOR_LOAD
from swarden.harness.engines.vllm.config import BOTH, DECODE, LEASE_S, PREFILL, VllmConfig
from swarden.harness.engines.vllm.device import POOL
from swarden.harness.engines.vllm.link import (
    Agent,
    Transfer,
    TransferHooks,
    VllmLink,
    WorkerSide,
    timed_modules,
    worker_of,
)
from swarden.harness.engines.vllm.requests import VllmRequest
from swarden.harness.kit.calls import intercept
from swarden.invariants.view import Snapshot

OTHER = {PREFILL: DECODE, DECODE: PREFILL}
TO_PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}  # as the proxies among the examples of a release
AT_ONCE = {  # as the proxy among the examples of a release that pushes, which sends a request to both sides at once
    "do_remote_decode": False,
    "do_remote_prefill": True,
    "remote_engine_id": PREFILL,
    "remote_host": "",
    "remote_port": 0,
    "tp_size": 1,
    "pp_size": 1,
}
CUT = "_p_side_truncated"  # set by a release in the parameters of a request whose prompt it has cut
CUTS_AT_LOOK_UP = "_truncate_mamba_request_for_prefill"  # called by the look-up of a release before 0.29


class SentBlock(NamedTuple):
    """A block of the prefill side that is read, for one place in a table of a request."""

    request: int
    component: int
    place: int
    block: int


class LinkedVllmEngine(VllmEngine):
    """One side; `sides` are both, the prefill side first, once they are built.

    The router forwards a request to the side that decodes it when the one that computes its prompt has answered.
    """

    def __init__(
        self, release: VllmRelease, config: VllmConfig, link: VllmLink, sides: "list[LinkedVllmEngine]"
    ) -> None:
        self._link, self._sides = link, sides
        super().__init__(release, config)
        hooks = TransferHooks(self._runner.copied_in, self._read)
        agent = Agent(config.role, link, self._runner.device.memory, self.faults, hooks)
        scheduler = self.built.scheduler
        worker = worker_of(release, config, scheduler.kv_cache_config, agent, OTHER[config.role])
        self._runner.loads = self.worker_side = WorkerSide(release, worker, scheduler.requests)
        self._kept: set[int] = set()  # requests that have ended, whose blocks wait to be read
        intercept(scheduler, "_free_blocks", self._let_go)

    def _found(self) -> Snapshot:
        """The snapshot, with the blocks that the worker has to read, until the scheduler has noted that they are read.

        The worker reports the end of a read with the pass of the poll, and the scheduler gets the report when that pass
        completes (update_from_output): after that step at the latest in which `most_launches` passes are in flight.
        """
        snapshot = super()._found()
        if not self._config.receives:
            return snapshot
        scheduler, steps = self.built.scheduler, self._link.steps_since_read[self._config.role].items()
        awaited = {
            number: (*load.tables,)
            for number, load in self._runner.loads.loading.items()
            if (req := scheduler.requests.get(load.rid)) is not None
            and req.status.name == WAITS_FOR_LOAD
            and req.request_id not in scheduler.finished_recving_kv_req_ids
        }
        due = frozenset([number for number, count in steps if count >= self._config.most_launches])
        return replace(snapshot, awaited=awaited, due_transfers=due)

    def awaits_another(self) -> bool:
        """Whether every unfinished request waits for the other side, or perhaps one for the transfer of its blocks.

        Blocks that are kept for a read excuse requests of this side's own, too: the end of a lease frees them.  Where
        heartbeats renew the leases for ever, only a drain shows it.
        """
        if self._config.push and WAITS_FOR_LOAD in self._statuses:
            return True
        return bool(self._kept) or all(request.is_linked for request in self._requests.live.values())

    @property
    def _other(self) -> "LinkedVllmEngine":
        [other] = [side for side in self._sides if side is not self]
        return other

    def route(self, submission: Submission) -> Sequence[int]:
        """The ordinals of the sides that serve a submission to this one, in this order; each notes its part of it."""
        way, mine = [0, 1], self._sides.index(self)
        if len(submission.tokens) <= self._config.local_len:
            way = [mine]
        elif self._config.two_way:
            way = [1 - mine, mine]
        for side, role in zip(way, (PREFILL, DECODE) if len(way) > 1 else (BOTH,), strict=True):
            self._sides[side]._requests.roles[submission.transfer_id] = role
        return way

    def submit(self, submission: Submission) -> int:
        self._link.clock.serve(timed_modules())
        number = super().submit(submission)
        if self._requests.roles[number] == PREFILL and number not in self._requests:
            self._link.answers[number] = None  # it is rejected
        return number

    def abort(self, request_id: int) -> None:
        self._link.clock.serve(timed_modules())
        if self._requests.roles[request_id] == PREFILL:
            self._link.answers.setdefault(request_id, None)
        super().abort(request_id)

    def step(self) -> Sequence[Streamed]:
        other = self._other
        self._link.clock.tick(self._config.role, other_has_work=other.has_work)
        self._link.clock.serve(timed_modules())
        for request in [*self._requests.live.values()] if self._config.receives else ():
            if request.id in self._link.answers:
                self._answered(request, self._link.answers.pop(request.id))
        if self._config.receives and not self._is_paused:
            self._link.pass_step(self._config.role, self._runner.loads.loading)
        streamed = super().step()
        other.worker_side.write()
        return streamed

    def _answered(self, request: VllmRequest, params: Mapping[str, Any] | None) -> None:
        """The prefill side has answered; a request that was sent to both sides is given up if that has no KV."""
        if request.is_linked:
            self._forward(request, params)
        elif params is None:
            super().abort(request.id)

    def _forward(self, request: VllmRequest, params: Mapping[str, Any] | None) -> None:
        request.is_linked = False
        request.req.kv_transfer_params = None if params is None else dict(params)
        super()._admit(request.req)

    def _admit(self, req: Any) -> None:
        request = self._requests.live[self.built.number_of(req.request_id)]
        role = self._requests.roles[request.id]
        if role == BOTH:
            super()._admit(req)
        elif role == DECODE and self._config.routes_at_once:
            self._forward(request, AT_ONCE | {"remote_request_id": str(request.id)})
        elif role == DECODE:
            request.is_linked = True
        else:
            req.kv_transfer_params = dict(TO_PREFILL)
            will_be_cut = self._cuts_at_look_up and req.num_prompt_tokens > 1
            super()._admit(req)
            request.is_cut = will_be_cut or _has_been_cut(req)

    @property
    def _statuses(self) -> Iterator[str]:
        return (request.req.status.name for request in self._requests.live.values())

    @property
    def _cuts_at_look_up(self) -> bool:
        """Whether the release cuts a prompt when it looks it up, and not when the request arrives."""
        look_up = type(self.built.scheduler.connector.connector_scheduler).get_num_new_matched_tokens
        return self._config.state_groups > 0 and CUTS_AT_LOOK_UP in look_up.__code__.co_names

    def _take(self, number: int, output: Any) -> None:
        request = self._requests.live.get(number)
        if request is not None and request.is_cut and _has_been_cut(request.req):
            self._drop_token(output)
        super()._take(number, output)
        if request is not None and output.finish_reason is not None and self._requests.roles[number] == PREFILL:
            self._link.answers[number] = output.kv_transfer_params
            if output.request_id in self.built.scheduler.requests:
                self._hand_over(request)

    def _drop_token(self, output: Any) -> None:
        """Drop the token after a cut prompt, which is no answer to the whole one; the router does not read it."""
        output.new_token_ids = []
        reasons = self._runner.release.code("FinishReason")
        if output.finish_reason == reasons.STOP:
            output.finish_reason = reasons.LENGTH

    def _hand_over(self, request: VllmRequest) -> None:
        self._kept.add(request.id)
        self.log.notice(seen.HandedOver(request.id, request.req.num_computed_tokens))

    def _let_go(self, original: Callable[..., None], req: Any) -> None:
        original(req)
        number = self.built.number_of(req.request_id)
        if number in self._kept:
            self._kept.remove(number)
            self.log.notice(seen.LetGo(number, "read, or its lease has ended"))

    def _finish_pause(self) -> None:
        """A release does not reset its cache while blocks wait to be read."""
        if not self._kept:
            super()._finish_pause()

    def _read(self, read: Transfer) -> None:
        """Blocks of the other side are copied to this one: the other side reports what it sends."""
        other = self._other
        for (request, _), moved in groupby(sorted(self._moved(read)), key=lambda one: one[:2]):
            for first, pages in _runs(list(moved)):
                other.log.notice(seen.Sent(request, POOL, first, pages))

    def _moved(self, read: Transfer) -> Iterator[SentBlock]:
        wanted = dict(zip(read.written, read.sent, strict=True))
        for component, table in enumerate(self.built.tables):
            for rid, blocks in table.req_to_blocks.items():
                for place, block in enumerate(blocks):
                    if block.block_id in wanted and not block.is_null:
                        yield SentBlock(self.built.number_of(rid), component, place, wanted[block.block_id])


def _has_been_cut(req: Any) -> bool:
    return CUT in req.kv_transfer_params


class LinkedVllmSystem(LinkedSystem):
    """One side of a pair, whose router chooses the sides that serve a request."""

    def __init__(self, engine: LinkedVllmEngine, sides: list[LinkedSystem]) -> None:
        super().__init__(engine, sides, patience=2 * LEASE_S)
        self._engine = engine

    def way_of(self, submission: Submission) -> Sequence[LinkedSystem]:
        return [self._sides[side] for side in self._engine.route(submission)]


def side_systems(release: VllmRelease, configs: Sequence[VllmConfig]) -> list[LinkedSystem]:
    """The two linked sides of a pair: prefill, then decode."""
    link, engines, sides = VllmLink(), list[LinkedVllmEngine](), list[LinkedSystem]()
    engines += [LinkedVllmEngine(release, config, link, engines) for config in configs]
    sides += [LinkedVllmSystem(engine, sides) for engine in engines]
    return sides


def _runs(moved: Sequence[SentBlock]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The first place and the blocks of each run of successive places."""
    for _, run in groupby(enumerate(moved), key=lambda pair: pair[1].place - pair[0]):
        members = [one for _, one in run]
        yield members[0].place, tuple([one.block for one in members])
