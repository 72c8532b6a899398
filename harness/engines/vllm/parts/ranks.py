"""Data-parallel ranks of a model with experts, machine `dp`: each is an engine core, and one of them gets a request.

Real: `DPEngineCoreProc` with its loop, pauses and sleeps, its own scheduler and pool; the loop of `DPCoordinatorProc`.
Stand-in: sockets are queues in memory; the process group and a forward are meetings of all ranks; the front end sends a
call to all ranks, and the next one when all have answered; a prompt says to which rank it goes.
Shows: a rank that waits for ever, with the place of each; a forward while the memory is released; a coordinator that
says for ever that the ranks run.
"""

import queue
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Annotated, Any, ClassVar

import msgspec

import swarden.invariants.events as seen
from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.linked import LinkedSystem
from swarden.harness.core.ops import Abort, Inject, Op, Submit
from swarden.harness.core.port import EnginePort, Streamed, Submission
from swarden.harness.core.target import EQUAL_RANKS
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.parts.part import VllmEngine, VllmPart
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.lockstep import LockstepQueue, LockstepThread
from swarden.harness.kit.part import Part
from swarden.harness.kit.ranks import CollectiveFailed, Group, Ranks, replace_collectives
from swarden.harness.kit.settings import within
from swarden.harness.kit.stand_ins import Silent

REPORT_LATE, WAVE_LATE, CALL_LATE = "report.late", "wave.late", "call.late"
FAULTS = {
    REPORT_LATE: "what a rank tells the coordinator of its wave arrives some steps later",
    WAVE_LATE: "the coordinator's start of a wave arrives at a rank some steps later",
    CALL_LATE: "a request, an abort or a call arrives at a rank some steps later",
}
TURNS_TO_PUBLISH = 8  # of a coordinator that gets no message: then it publishes its state again
STEPS_OF_WAVES = 150  # in which ranks without requests agree on the end of a wave, of a pause, and of a sleep
MEMORY = ("weights", "kv_cache")
PAUSE, SLEEP, RESUME = ("pause_scheduler", ("keep", True)), ("sleep", (1, "keep")), ("resume_scheduler", ())
AT_START = {  # attributes of a core
    **dict.fromkeys(("engines_running", "pending_pause", "ignore_start_dp_wave", "publish_dp_lb_stats"), False),
    **dict.fromkeys(("reject_new_requests", "enable_fault_tolerance", "step_counter", "current_wave"), 0),
    **dict.fromkeys(("has_coordinator", "process_input_queue_block", "prefill_schedule_interval"), 1),
}


class RankGroup(VllmPart, frozen=True):
    """`ranks` are --data-parallel-size of a model with experts: so many engine cores."""

    ranks: Annotated[int, within(2, 8)] | None = None

    server_need = "ranks"

    def check_release(self, config: Any, release: VllmRelease) -> None:
        if len(config.parts) > 1:
            raise InvalidConfig("with ranks an engine has no further capability here; set those to their defaults")

    def inapplicable(self, config: Any, release: Any) -> Sequence[str]:
        """Ranks have requests of their own, and an abort arrives late."""
        return ("aborted_prompts_are_not_computed", *EQUAL_RANKS)

    def faults(self, config: Any) -> Mapping[str, str]:
        return FAULTS

    def shape(self, config: Any) -> Mapping[str, Any]:
        return {"ranks": self.ranks, "differing": tuple(FAULTS)}

    def attach(self, engine: VllmEngine) -> Sequence[Part]:
        return [Rank(engine, DataParallel.last)]

    def systems(self, release: VllmRelease, build: Callable[[], EnginePort]) -> Sequence[LinkedSystem]:
        assert self.ranks is not None, "asked only if there are several"
        DataParallel(release, self.ranks)
        systems = list[LinkedSystem]()
        engines: list[Any] = [build() for _ in range(self.ranks)]
        systems += [DataRankSystem(engine, systems, patience=STEPS_OF_WAVES) for engine in engines]
        return systems


class DataRankSystem(LinkedSystem):
    """One rank, to which some prompts go, and some faults come; an abort names a request of all ranks."""

    def do(self, op: Op) -> bool:
        rank = self._sides.index(self)
        if isinstance(op, Submit) and sum(op.tokens or op.recipe.path) % len(self._sides) != rank:
            return False
        if isinstance(op, Abort):
            number, of_rank = divmod(op.request, len(self._sides))
            return of_rank == rank and super().do(msgspec.structs.replace(op, request=number))
        return (not isinstance(op, Inject) or op.rank in (None, rank)) and super().do(op)

    def way_of(self, submission: Submission) -> Sequence[LinkedSystem]:
        return [self]


class Inbox(LockstepQueue):
    """The input of a core, which waits only where it has nothing to do."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return super().get() if block else queue.Queue.get(self, block=False)


class Coordinator:
    """The coordinator, with what the front end knows from it: the wave, and whether it is under way."""

    def __init__(self, size: int, woken: Callable[[Any], None]) -> None:
        self.wave, self.is_running, self._turns = 0, False, 0
        client: Any = import_module("vllm.v1.engine.core_client")
        self._is_told = hasattr(client.BackgroundResources, "first_req_send_socket")
        self._sockets = self._front, self.reports, ranks = [*map(_socket, (self._published, None, woken))]
        ranks.arrived.extend([b"\x01"] * size)  # each has subscribed
        module: Any = import_module("vllm.v1.engine.coordinator")
        module.make_zmq_socket = lambda path, **_: nullcontext(self._sockets[path])
        module.zmq.Poller = lambda: Silent(poll=self._poll)
        self._thread = LockstepThread(partial(module.DPCoordinatorProc(size).process_input_socket, *range(3)))
        self._thread.start()

    def turn(self) -> None:
        self._turns += 1
        while self._is_due():
            self._thread.step()

    def tell(self, rank: int) -> None:
        """Tell it of a first request for a rank, as add_request_async to 0.32.0."""
        if self._is_told and not self.is_running:
            self.is_running = True
            self._front.arrived.append(msgspec.msgpack.encode((rank.to_bytes(2, "little"), self.wave)))

    def _poll(self, timeout: float) -> list[tuple[Any, bool]]:
        """The sockets that have a message; none after some turns without one."""
        self._thread.wait_until(self._is_due)
        self._turns = 0
        return [(socket, True) for socket in self._sockets if socket.arrived]

    def _is_due(self) -> bool:
        return self._turns >= TURNS_TO_PUBLISH or any(socket.arrived for socket in self._sockets)

    def _published(self, message: bytes) -> None:
        _, self.wave, self.is_running = msgspec.msgpack.decode(message)


class DataParallel:
    """The ranks of an engine, their coordinator and the messages between them."""

    last: ClassVar["DataParallel"]

    def __init__(self, release: VllmRelease, size: int) -> None:
        LockstepThread.end_all()
        distributed: Any = release.torch.distributed
        if not isinstance(distributed.all_reduce, partial):
            replace_collectives(distributed)
        add_up = partial(distributed.all_reduce, op=distributed.ReduceOp.SUM)
        parallel: Any = import_module("vllm.config.parallel")
        parallel.cpu_all_reduce_ = lambda data, group, timeout: add_up(data, group=group)
        DataParallel.last, self.meetings = self, Ranks(size, ())
        self.group = type("RankedGroup", (Group,), {"size": lambda group: group[1]})("dp", size)
        self.ranks: list[Rank] = []
        self.mail = {late: [deque[Any]() for _ in range(size)] for late in FAULTS}
        self.calls, self._unanswered, self._failed = deque[Any](), set[int](), ""
        self.kinds: Any = import_module("vllm.v1.engine").EngineCoreRequestType
        self._encode = import_module("vllm.v1.serial_utils").MsgpackEncoder().encode
        self._coordinator = Coordinator(size, self._woken)

    @property
    def is_coming(self) -> bool:
        """Is a message under way?"""
        return any(chain.from_iterable(self.mail.values()))

    @property
    def has_work(self) -> bool:
        runs = any(rank.core.engines_running or rank.thread.held_by for rank in self.ranks)
        return bool(self.is_coming or self.calls or self._coordinator.is_running or runs)

    def add(self, rank: int, req: Any) -> None:
        """Send a request to a rank."""
        self.mail[CALL_LATE][rank].append((self.kinds.ADD, (req, self._coordinator.wave)))
        self._coordinator.tell(rank)

    def call(self, *calls: tuple[str, Sequence[Any]]) -> None:
        """Call methods of all ranks, one after the other."""
        self.calls.extend(calls)
        if self.calls and not self._unanswered:
            self._unanswered.update(range(len(self.ranks)))
            for messages in self.mail[CALL_LATE]:
                messages.append((self.kinds.UTILITY, (0, 0, *self.calls[0])))

    def turn(self) -> None:
        """Deliver the messages, and let each rank make one turn of its loop, or go on until it waits for another."""
        Ranks.current = self.meetings
        for late, queues in self.mail.items():
            for rank, messages in zip(self.ranks, queues, strict=True):
                put = self._coordinator.reports.arrived.append if late == REPORT_LATE else rank.core.input_queue.put
                while messages and not rank.engine.faults.fires(late):
                    put(messages.popleft())
            if late == REPORT_LATE:
                self._coordinator.turn()
        waiting = [*self.ranks]
        while ready := [rank for rank in waiting if rank.can_run]:
            for rank in ready:
                self._run(rank)
                if rank.thread.held_by is None:
                    waiting.remove(rank)
        idle = [rank for rank in self.ranks if rank.is_idle]
        if waiting and len(waiting) + len(idle) == len(self.ranks) and not self.is_coming:
            self.meetings.leave(self.group, [rank.number for rank in idle])
            for rank in waiting:
                self._run(rank)
        if self._failed:
            raise CollectiveFailed(self._failed)

    def _woken(self, message: Any) -> None:
        if isinstance(message, tuple):  # else the coordinator is ready
            for waves in self.mail[WAVE_LATE]:
                waves.append((self.kinds(message[0]), msgspec.msgpack.decode(message[1])))

    def _run(self, rank: "Rank") -> None:
        self.meetings.rank = rank.number
        rank.thread.step()
        while not rank.core.output_queue.empty():
            client, output = rank.core.output_queue.get_nowait()
            if client == -1:
                output.engine_index = rank.number
                self.mail[REPORT_LATE][rank.number].append(self._encode(output)[0])
            for of_request in output.outputs:
                rank.engine.take(rank.engine.built.number_of(of_request.request_id), of_request)
            if (answer := output.utility_output) is not None:
                self._failed = self._failed or answer.failure_message or ""
                self._unanswered.discard(rank.number)
                if not self._unanswered:
                    self.calls.popleft()
                    self.call()


def _socket(send: Any) -> Any:
    arrived = deque[bytes]()
    return Silent(arrived=arrived, recv=arrived.popleft, send=send, send_multipart=send)


class Rank(Part):
    """One rank: its engine core becomes one with a loop; the first rank moves all of them."""

    def __init__(self, engine: VllmEngine, whole: DataParallel) -> None:
        self.engine, self.core, self._whole, self.number = engine, engine.built.core, whole, len(whole.ranks)
        whole.ranks.append(self)
        self._is_pausing, self._asleep = False, list[str]()
        core, module = self.core, import_module("vllm.v1.engine.core")
        core.__class__ = module.DPEngineCoreProc
        vars(core).update(
            AT_START, dp_rank=self.number, engine_index=self.number, dp_group=whole.group, eep_scaling_state=None
        )
        vars(core).update(
            step_fn=core.step if core.batch_queue is None else core.step_with_batch_queue,
            input_queue=Inbox(),
            output_queue=queue.Queue(),
            shutdown_state=module.EngineShutdownState.RUNNING,
            dp_sync_interval=getattr(core.vllm_config.parallel_config, "dp_sync_interval", None),
            _idle_state_callbacks=[],
            _reset_caches=self._end_pause,
            _handle_shutdown=self._end_turn,
        )
        intercept(core, "abort_requests", self._aborted)
        vars(engine.pauses)["views"] = lambda snapshot: snapshot  # those of a rank are other ones
        names = ("step", "admit", "abort", "pause", "resume", "awaits_another")
        vars(engine).update({name: getattr(self, name) for name in names}, forks=False)
        intercept(engine.runner, "launch", self._launch)
        vars(engine.runner).update(execute_dummy_batch=self._forward, is_sleeping=self._asleep)
        vars(engine.runner).update(sleep=self._sleep, wake_up=self._wake)
        self.thread = LockstepThread(core.run_busy_loop)
        self.thread.start()

    @property
    def can_run(self) -> bool:
        """Whether its loop is held by nothing, or no longer."""
        held_by = self.thread.held_by
        return held_by is None or held_by()

    @property
    def is_idle(self) -> bool:
        return not (self.thread.held_by or self.core.has_work() or self.core.input_queue.queue)

    # --- the engine

    @property
    def has_work(self) -> bool:
        return self._whole.has_work

    def settle(self) -> None:
        """Requests that are under way are linked to a front end."""
        for request in self.engine.requests.live.values():
            request.is_linked = request.req.request_id not in self.engine.built.scheduler.requests

    def step(self) -> Sequence[Streamed]:
        self.engine.begin_step()
        if self.number == 0:
            self._whole.turn()
        return self.engine.requests.streamed()

    def awaits_another(self) -> bool:
        return self._whole.is_coming or bool(self._whole.calls)

    def admit(self, req: Any) -> None:
        self._whole.add(self.number, req)

    def abort(self, request_id: int) -> None:
        rids = [self.engine.requests.id_of(request_id)]
        self._whole.mail[CALL_LATE][self.number].append((self._whole.kinds.ABORT, rids))

    def pause(self) -> bool:
        self._is_pausing = True
        return self._call(PAUSE, *[SLEEP] * self.engine.config.pauses.sleeps)

    def resume(self) -> None:
        if self.engine.is_paused:
            self.engine.log.notice(seen.Resumed())
        self._is_pausing = self.engine.is_paused = False
        wakes = [("wake_up", ([part],)) for part in MEMORY] * self.engine.config.pauses.sleeps
        self._call(*wakes, RESUME)

    def _call(self, *calls: tuple[str, Sequence[Any]]) -> bool:
        if self.number == 0:
            self._whole.call(*calls)
        return True

    # --- its core

    def _end_turn(self) -> bool:
        self.thread.wait()
        return True

    def _end_pause(self, *_: Any, **__: Any) -> None:
        self.engine.pauses.reset(resets_running=True)
        if self._is_pausing and RESUME not in self._whole.calls:
            self._is_pausing, self.engine.is_paused = False, True
            self.engine.log.notice(seen.Paused())

    def _aborted(self, original: Callable[..., None], rids: Sequence[str]) -> None:
        original(rids)
        for number in map(self.engine.built.number_of, rids):
            if number in self.engine.requests:
                self.engine.requests.end(number, seen.FinishReason.ABORT)

    # --- its executor

    def _launch(self, original: Callable[..., Any], output: Any) -> Any:
        launched = original(output)
        if launched.entries:
            self._forward()
        return launched

    def _forward(self) -> None:
        if self._asleep:
            raise CollectiveFailed(f"a forward of rank {self.number}, whose {' and '.join(self._asleep)} are released")
        self._whole.group.meet("forward", "a batch", None)

    def _sleep(self, level: int) -> None:
        self._asleep[:] = MEMORY
        self.engine.runner.device.lose_kv()

    def _wake(self, parts: Sequence[str]) -> None:
        self._asleep[:] = [part for part in self._asleep if part not in parts]
