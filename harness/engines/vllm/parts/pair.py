"""Prefill and decode, machine `pd`: which side serves a request, and how the KV comes to the decode side.

Real: from 0.22.0: two cores, scheduler and worker side of the `NixlConnector` that pulls: offered blocks, hits of the
decode side, windows, Mamba states, leases, heartbeats, notifications, failed reads; with `push`, from 0.26.0, the
`NixlPushConnector`: registrations, writes, leases; with `mooncake_link`, from 0.26.0, both sides of the
`MooncakeConnector` with their coroutines: pulls, writes, answers, expiry.
Stand-in: NIXL (`link.py`: copies of tags; every second one overtakes the passes in flight), the start of the worker,
the proxy, the clock (one second a step); Mooncake's transfer engine, sockets and event loop (`mooncake_link.py`).
Faults: `link.fails`, `link.delay`, `link.drop`; of pushes, on the prefill side, the first two; of Mooncake all, there.
Shows: blocks freed before they are read, read into the wrong place, or never freed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.vllm import link
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.connector import NIXL, P2P, PUSH, connectors_of
from swarden.harness.engines.vllm.layers import MAX_CONTEXT_LEN, POOL, WAITS_FOR_LOAD
from swarden.harness.engines.vllm.parts import mooncake_link
from swarden.harness.engines.vllm.parts.offload import Offload
from swarden.harness.engines.vllm.parts.part import Named, VllmConfig, VllmEngine, VllmPart
from swarden.harness.engines.vllm.parts.pause import AWAKE
from swarden.harness.engines.vllm.parts.store import Storing, keeps_ended_requests
from swarden.harness.engines.vllm.requests import VllmRequest
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.launch import Line
from swarden.harness.kit.part import Part, off
from swarden.harness.kit.settings import Drawn, IfReleaseHas, Needs, OneOf, PartOf, within
from swarden.invariants.view import Snapshot

BOTH, PREFILL, DECODE = "both", "prefill", "decode"  # roles
ROLE = "role"
SIDES: dict[str, Sequence[Any]] = {ROLE: (PREFILL, DECODE)}
FAULTS = {
    link.LINK_FAILS: "a transfer of KV to the decode side fails, and writes nothing",
    link.LINK_DROP: "the prefill side never learns that its KV was read, and keeps it until the lease ends",
    link.LINK_DELAY: "a transfer of KV to the decode side takes four more steps",
}
# A prefill side never reserves pages or takes a request over, so these are reported, too.
HANDOVERS = (seen.HandedOver, seen.Reserved, seen.Sent, seen.TakenOver)
KV_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
OTHER = {PREFILL: DECODE, DECODE: PREFILL}
TO_PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}  # as the proxies among the examples of a release
AT_ONCE = {  # as the proxy among the examples of a release that pushes, which sends a request to both sides at once
    "do_remote_decode": False,
    "do_remote_prefill": True,
    "remote_engine_id": PREFILL,
    "remote_host": "",
    "remote_bootstrap_addr": "",
    "remote_port": 0,
    "tp_size": 1,
    "pp_size": 1,
}
CUT = "_p_side_truncated"  # set by a release in the parameters of a request whose prompt it has cut
CUTS_AT_LOOK_UP = "_truncate_mamba_request_for_prefill"  # called by the look-up of a release before 0.29
SUFFIXES = {PREFILL: "-aaaaaaaa", DECODE: "-dddddddd"}  # of the ids of requests; random in a server


class Pairing(VllmPart, frozen=True):
    """A side of a pair has the `role` "prefill" or "decode", and the connector between them.

    If it `has_both_roles`, its kv_role is "kv_both".  The side to which a request is submitted serves a prompt of at
    most `local_len` tokens alone, without a transfer; if the pair is `two_way`, it decodes the others, too, and the
    other side computes their prompts.  With `push` the prefill side writes blocks of the decode side, which else reads
    those of the prefill side; if the router `routes_at_once`, a request goes to both sides at once, else to the decode
    side with the answer of the prefill side.  With a `mooncake_link` the MooncakeConnector is that link, and a request
    goes to both sides at once.
    """

    role: Annotated[str, OneOf((BOTH, PREFILL, DECODE))] = BOTH
    has_both_roles: Annotated[bool, Drawn((False, False, True))] = False
    local_len: Annotated[int, within(0, MAX_CONTEXT_LEN), Drawn((0, 8, 4, 16))] = 0
    two_way: Annotated[bool, PartOf("has_both_roles")] = False
    push: Annotated[bool, Drawn((False, False, False, True)), IfReleaseHas("pushes")] = False
    routes_at_once: Annotated[bool, PartOf("push")] = False
    mooncake_link: Annotated[bool, Drawn((False, False, True)), IfReleaseHas("mooncake_link")] = False

    needs = (
        Needs(ROLE, off(Storing, Offload) | AWAKE),
        Needs("two_way", {"has_both_roles": (True,), "push": (False,)}),
        *(Needs(setting, SIDES) for setting in ("local_len", "push", "mooncake_link")),
        Needs("routes_at_once", {"push": (True,)}),
        Needs("mooncake_link", {"push": (False,), "two_way": (False,)}),
    )
    server_need = "P/D"

    @classmethod
    def launched(cls, line: Line) -> dict[str, Any]:
        """A side of both roles is driven as the prefill side of a pair of such sides."""
        connectors, kv_role = connectors_of(line), line.mapping("kv-transfer-config").get("kv_role")
        if not {NIXL, PUSH, P2P} & connectors.keys():
            return {}
        role = DECODE if kv_role == KV_ROLES[DECODE] else PREFILL
        links = {"push": PUSH in connectors, "mooncake_link": P2P in connectors}
        return {"role": role, "has_both_roles": kv_role not in KV_ROLES.values(), **links}

    @property
    def receives(self) -> bool:
        """Whether this side decodes requests of which the other side computes the prompts."""
        return self.role == DECODE or self.two_way

    @property
    def sends(self) -> bool:
        """Whether this side computes prompts of requests that the other side decodes."""
        return self.role == PREFILL or self.two_way

    def check(self, config: VllmConfig) -> None:
        if self.has_both_roles and not self.is_on:
            raise InvalidConfig('has_both_roles is true with role "both", want false: it is of a side of a pair')

    def check_release(self, config: VllmConfig, release: VllmRelease) -> None:
        """Before 0.30.0 the caches of states have another form."""
        if self.mooncake_link and config.states.is_on and not release.has("failed_requests"):
            raise InvalidConfig(f"mooncake_link is true with state_groups, want false for vllm {release.text}")

    def faults(self, config: VllmConfig) -> Mapping[str, str]:
        """A transfer fails on the side that makes it; each push is reported to the prefill side."""
        if self.mooncake_link:
            return mooncake_link.FAULTS if self.sends else {}
        if self.receives:
            return {} if self.push else FAULTS
        return {name: FAULTS[name] for name in (link.LINK_FAILS, link.LINK_DELAY) if self.push}

    def limits(self, config: VllmConfig) -> Mapping[str, Any]:
        return {"shares_prefixes": False}

    def reported(self, config: VllmConfig) -> Sequence[type[object]]:
        return *(HANDOVERS if self.sends else ()), *([seen.CopiedIn] if self.receives else ())

    def arguments(self, config: VllmConfig, release: VllmRelease) -> Named:
        kv_role = "kv_both" if self.has_both_roles else KV_ROLES[self.role]
        return {"KVTransferConfig": {"kv_role": kv_role, "engine_id": self.role}}

    def connectors(self, config: VllmConfig, release: VllmRelease) -> Named:
        return {P2P: {}} if self.mooncake_link else {PUSH if self.push else NIXL: {"kv_lease_duration": link.LEASE_S}}

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        """The two sides of a push have different ids of requests, as those of servers."""
        engine.forks = False
        if self.push or self.mooncake_link:
            engine.requests.suffix = SUFFIXES[self.role]
        return ()


class SentBlock(NamedTuple):
    """A block of the prefill side that is read, for one place in a table of a request."""

    request: int
    component: int
    place: int
    block: int


class PairSide(Part):
    """One side; `sides` are both, the prefill side first, once they are built.

    The router forwards a request to the side that decodes it when the one that computes its prompt has answered.
    `_roles` has, for each request, the part that this side serves of it.
    """

    def __init__(self, engine: VllmEngine, shared: link.VllmLink, sides: "list[PairSide]") -> None:
        self._engine, self._link, self._sides, self._settings = engine, shared, sides, engine.config.pair
        self._roles: dict[int, str] = {}
        runner, scheduler, role = engine.runner, engine.built.scheduler, self._settings.role
        engine.requests.is_handed_over = lambda number: self._roles.get(number) == PREFILL
        if isinstance(shared, mooncake_link.MooncakeLink):
            worker: Any = mooncake_link.MooncakeSide(engine, shared, role, OTHER[role], self._read)
        else:
            agent = link.Agent(role, shared, engine, self._read)
            groups, pushes = scheduler.kv_cache_config, self._settings.push
            released = link.worker_of(runner.release, groups, agent, OTHER[role], pushes=pushes)
            worker = link.WorkerSide(runner.release, released, scheduler.requests, receives=self._settings.receives)
        runner.loads = self._worker = worker
        self._admit_now, self._abort_now = engine.admit, engine.abort
        intercept(engine, "submit", self._submit)
        intercept(engine, "abort", self._abort)
        intercept(engine, "step", self._step)
        intercept(engine, "admit", self._admit)
        intercept(engine, "take", self._take)

    @property
    def is_busy(self) -> bool:
        """A release does not reset its cache while blocks wait to be read."""
        return keeps_ended_requests(self._engine)

    def views(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, with the blocks that the worker has to read, until the scheduler has noted that they are read.

        The worker reports the end of a read with the pass of the poll, and the scheduler gets the report when that pass
        completes (update_from_output): after that step at the latest in which `most_launches` passes are in flight.
        """
        if not self._settings.receives:
            return snapshot
        engine, steps = self._engine, self._link.steps_since_read[self._settings.role].items()
        scheduler = engine.built.scheduler
        awaited = {
            number: (*load.tables,)
            for number, load in engine.runner.loads.loading.items()
            if (req := scheduler.requests.get(load.rid)) is not None
            and req.status.name == WAITS_FOR_LOAD
            and req.request_id not in scheduler.finished_recving_kv_req_ids
        }
        due = frozenset([number for number, count in steps if count >= engine.limits.most_launches])
        return replace(snapshot, awaited=awaited, due_transfers=due)

    def awaits_another(self) -> bool:
        """Whether every unfinished request waits for the other side, or perhaps one for the transfer of its blocks.

        Blocks that are kept for a read excuse requests of this side's own, too: the end of a lease frees them.  Where
        heartbeats renew the leases for ever, only a drain shows it.
        """
        requests = self._engine.requests.live.values()
        may_wait_here = self._settings.push or self._settings.mooncake_link
        if may_wait_here and any(request.req.status.name == WAITS_FOR_LOAD for request in requests):
            return True
        return self.is_busy or all(request.is_linked for request in requests)

    @property
    def _other(self) -> "PairSide":
        [other] = [side for side in self._sides if side is not self]
        return other

    def route(self, submission: Submission) -> Sequence[int]:
        """The ordinals of the sides that serve a submission to this one, in this order; each notes its part of it."""
        way, mine = [0, 1], self._sides.index(self)
        if len(submission.tokens) <= self._settings.local_len:
            way = [mine]
        elif self._settings.two_way:
            way = [1 - mine, mine]
        for side, role in zip(way, (PREFILL, DECODE) if len(way) > 1 else (BOTH,), strict=True):
            self._sides[side]._roles[submission.transfer_id] = role
        return way

    def _submit(self, original: Callable[[Submission], int], submission: Submission) -> int:
        self._link.clock.serve(link.timed_modules())
        number = original(submission)
        if self._roles[number] == PREFILL and number not in self._engine.requests:
            self._link.answers[number] = None  # it is rejected
        return number

    def _abort(self, original: Callable[[int], None], request_id: int) -> None:
        self._link.clock.serve(link.timed_modules())
        if self._roles[request_id] == PREFILL:
            self._link.answers.setdefault(request_id, None)
        original(request_id)

    def _step(self, original: Callable[[], Sequence[Streamed]]) -> Sequence[Streamed]:
        engine, role, receives = self._engine, self._settings.role, self._settings.receives
        self._link.clock.tick(role, other_has_work=self._other._engine.has_work)
        self._link.clock.serve(link.timed_modules())
        for request in [*engine.requests.live.values()] if receives else ():
            if request.id in self._link.answers:
                self._answered(request, self._link.answers.pop(request.id))
        if receives and not engine.pauses.is_paused:
            self._link.pass_step(role, engine.runner.loads.loading)
        streamed = original()
        self._other._worker.write()
        return streamed

    def _answered(self, request: VllmRequest, params: Mapping[str, Any] | None) -> None:
        """The prefill side has answered; a request that was sent to both sides is given up if that has no KV."""
        if request.is_linked:
            self._forward(request, params)
        elif params is None and not self._settings.mooncake_link:
            self._abort_now(request.id)

    def _forward(self, request: VllmRequest, params: Mapping[str, Any] | None) -> None:
        request.is_linked = False
        request.req.kv_transfer_params = None if params is None else dict(params)
        self._admit_now(request.req)

    def _admit(self, original: Callable[[Any], None], req: Any) -> None:
        request = self._engine.requests.live[self._engine.built.number_of(req.request_id)]
        role = self._roles[request.id]
        if role == BOTH:
            original(req)
        elif role == DECODE and (self._settings.routes_at_once or self._settings.mooncake_link):
            self._forward(request, AT_ONCE | dict.fromkeys(("remote_request_id", "transfer_id"), str(request.id)))
        elif role == DECODE:
            request.is_linked = True
        else:
            req.kv_transfer_params = TO_PREFILL | {"transfer_id": str(request.id)}
            will_be_cut = self._cuts_at_look_up and req.num_prompt_tokens > 1
            original(req)
            request.is_cut = will_be_cut or _has_been_cut(req)

    @property
    def _cuts_at_look_up(self) -> bool:
        """Whether the release cuts a prompt when it looks it up, and not when the request arrives."""
        engine = self._engine
        look_up = type(engine.built.scheduler.connector.connector_scheduler).get_num_new_matched_tokens
        return bool(engine.runner.device.states.groups) and CUTS_AT_LOOK_UP in look_up.__code__.co_names

    def _take(self, original: Callable[[int, Any], None], number: int, output: Any) -> None:
        request = self._engine.requests.live.get(number)
        if request is not None and request.is_cut and _has_been_cut(request.req):
            self._drop_token(output)
        original(number, output)
        if request is not None and output.finish_reason is not None and self._roles[number] == PREFILL:
            self._link.answers[number] = output.kv_transfer_params
            if output.request_id in self._engine.built.scheduler.requests:
                self._engine.log.notice(seen.HandedOver(number, request.req.num_computed_tokens))

    def _drop_token(self, output: Any) -> None:
        """Drop the token after a cut prompt, which is no answer to the whole one; the router does not read it."""
        output.new_token_ids = []
        reasons = self._engine.runner.release.code("FinishReason")
        if output.finish_reason == reasons.STOP:
            output.finish_reason = reasons.LENGTH

    def _read(self, read: link.Transfer) -> None:
        """Blocks of the other side are copied to this one: the other side reports what it sends."""
        other = self._other
        for (request, _), moved in groupby(sorted(self._moved(read)), key=attrgetter("request", "component")):
            for first, pages in _runs(list(moved)):
                other._engine.log.notice(seen.Sent(request, POOL, first, pages))

    def _moved(self, read: link.Transfer) -> Iterator[SentBlock]:
        wanted = dict(zip(read.written, read.sent, strict=True))
        for component, table in enumerate(self._engine.built.tables):
            for rid, blocks in table.req_to_blocks.items():
                for place, block in enumerate(blocks):
                    if block.block_id in wanted and not block.is_null:
                        yield SentBlock(self._engine.built.number_of(rid), component, place, wanted[block.block_id])


def _has_been_cut(req: Any) -> bool:
    return CUT in req.kv_transfer_params


def _runs(moved: Sequence[SentBlock]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The first place and the blocks of each run of successive places."""
    for _, run in groupby(enumerate(moved), key=lambda pair: pair[1].place - pair[0]):
        blocks = [sent for _, sent in run]
        yield blocks[0].place, tuple([sent.block for sent in blocks])


def check_linked(sides: Sequence[Pairing]) -> None:
    """Raise InvalidConfig if these are not the settings of two sides of one pair."""
    for setting in ("push", "mooncake_link", "routes_at_once", "local_len", "two_way"):
        if len({getattr(side, setting) for side in sides}) > 1:
            raise InvalidConfig(f"{setting} differs between the sides; make it equal")
