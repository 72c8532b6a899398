"""The data-parallel ranks of an engine: engine cores, the coordinator and the front end, in lock-step."""

import queue
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

import msgspec

import swarden.invariants.events as seen
from swarden.harness.core.linked import LinkedSystem
from swarden.harness.core.ops import Inject, Op, ResetCause, Submit
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.vllm.adapter import VllmEngine
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.parts.pause import PauseProgress, Pausing
from swarden.harness.engines.vllm.parts.ranks import CALL_LATE, FAULTS, REPORT_LATE, WAVE_LATE
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.runner import Runner
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.lockstep import LockstepThread
from swarden.harness.kit.ranks import CollectiveFailed, Group, Ranks, replace_collectives
from swarden.invariants.events import FinishReason
from swarden.invariants.view import Snapshot

TURNS_TO_PUBLISH = 8  # of a coordinator that gets no message: then it publishes its state again
STEPS_OF_WAVES = 150  # in which ranks without requests agree on the end of a wave, of a pause, and of a sleep
EQUALS = ("compute_equal_batches", "have_equal_requests", "have_equal_trees", "have_equal_free_units")
UPDATE, MEMORY = "update_weights", ("weights", "kv_cache")
PAUSE, SLEEP, RESUME = ("pause_scheduler", ("keep", True)), ("sleep", (1, "keep")), ("resume_scheduler", ())
WAKE = [("wake_up", ([part],)) for part in MEMORY]
AT_START = {
    **dict.fromkeys(("engines_running", "pending_pause", "ignore_start_dp_wave", "publish_dp_lb_stats"), False),
    **{"reject_new_requests": False, "enable_fault_tolerance": False, "eep_scaling_state": None},
    **{"has_coordinator": True, "process_input_queue_block": True, "step_counter": 0, "current_wave": 0},
}


class ForwardWhileAsleep(Exception):
    """A rank computes although its memory is released."""


class RankedGroup(Group):
    """The group of all ranks, of which a release asks the size."""

    def size(self) -> int:  # type: ignore[override]
        return self[1]


class Inbox(queue.Queue[Any]):
    """The input of an engine core, whose loop waits for it."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if block and LockstepThread.running is not None:
            LockstepThread.running.wait_until(self.qsize)
        return super().get(block=False)


class Socket:
    """One end of a socket of the coordinator."""

    def __init__(self, send: Any = None) -> None:
        self.arrived = deque[bytes]()
        self.recv, self.send, self.send_multipart = self.arrived.popleft, send, send


class DataParallel:
    """The ranks of an engine and their coordinator, of whose sockets it is the Poller, and the front end."""

    def __init__(self, release: VllmRelease, size: int) -> None:
        LockstepThread.end_all()
        distributed: Any = release.torch.distributed
        if not isinstance(distributed.all_reduce, partial):
            replace_collectives(distributed)
        reduce = partial(distributed.all_reduce, op=distributed.ReduceOp.SUM)
        vars(import_module("vllm.config.parallel"))["cpu_all_reduce_"] = lambda tensor, group, timeout: reduce(
            tensor, group=group
        )
        self.meetings, self.group = Ranks(size, ()), RankedGroup("dp", size)
        self.engines: list[RankEngine] = []
        self.wave, self.is_running, self.calls, self.asked = 0, False, deque[Any](), set[int]()
        self.mail = {late: [deque[Any]() for _ in range(size)] for late in FAULTS}
        self.kinds: Any = import_module("vllm.v1.engine").EngineCoreRequestType
        self._encode = import_module("vllm.v1.serial_utils").MsgpackEncoder().encode
        resources = import_module("vllm.v1.engine.core_client").BackgroundResources
        self._tells_first = hasattr(resources, "first_req_send_socket")
        self._failed = ""
        self._turns = 0
        self._sockets = [Socket(self._published), Socket(), Socket(self._woken)]
        self._sockets[2].arrived.extend([b"\x01"] * size)  # each rank has subscribed
        module: Any = import_module("vllm.v1.engine.coordinator")
        module.make_zmq_socket = lambda path, **_: nullcontext(self._sockets[path])
        module.zmq.Poller = lambda: self
        self._coordinator = LockstepThread(partial(module.DPCoordinatorProc(size).process_input_socket, *range(3)))
        self._coordinator.start()

    @property
    def is_busy(self) -> bool:
        """Is a message or an answer under way?"""
        return self.is_coming or bool(self.calls)

    @property
    def is_coming(self) -> bool:
        """Is a message under way?"""
        return any(chain.from_iterable(self.mail.values()))

    @property
    def has_work(self) -> bool:
        return self.is_busy or self.is_running or any(one.is_meeting or one.built.core.engines_running for one in self.engines)

    def add(self, rank: int, req: Any) -> None:
        """Send a request to a rank, as add_request_async: to 0.32.0 it tells the coordinator of a first request."""
        self.mail[CALL_LATE][rank].append((self.kinds.ADD, (req, self.wave)))
        if self._tells_first and not self.is_running:
            self.is_running = True
            self._sockets[0].arrived.append(msgspec.msgpack.encode((rank.to_bytes(2, "little"), self.wave)))

    def turn(self) -> None:
        """Deliver the messages, and let each rank make one turn of its loop, or go on until it waits."""
        Ranks.current = self.meetings
        self._deliver()
        waiting = [*self.engines]
        while ready := [one for one in waiting if (held_by := one.thread.held_by) is None or held_by()]:
            for engine in ready:
                self._run(engine)
                if engine.thread.held_by is None:
                    waiting.remove(engine)
        stuck = [one for one in waiting if one.is_meeting]
        if stuck and len(waiting) == len(self.engines) and not (self.is_coming or (self.calls and not self.asked)):
            self.meetings.leave(self.group, set(range(len(self.engines))) - {one.rank for one in stuck})
            for engine in stuck:
                self._run(engine)
        if self._failed:
            raise CollectiveFailed(self._failed)

    def register(self, *_: Any) -> None: ...

    def poll(self, timeout: float) -> list[tuple[Any, bool]]:
        """The sockets that have a message; none after some turns without one."""
        assert LockstepThread.running is not None
        LockstepThread.running.wait_until(self._is_due)
        self._turns = 0
        return [(one, True) for one in self._sockets if one.arrived]

    def _is_due(self) -> bool:
        return self._turns >= TURNS_TO_PUBLISH or any(one.arrived for one in self._sockets)

    def _published(self, message: bytes) -> None:
        _, self.wave, self.is_running = msgspec.msgpack.decode(message)

    def _woken(self, message: Any) -> None:
        if isinstance(message, tuple):  # else the coordinator is ready
            for waves in self.mail[WAVE_LATE]:
                waves.append((self.kinds(message[0]), msgspec.msgpack.decode(message[1])))

    def _deliver(self) -> None:
        if self.calls and not self.asked:
            self.asked.update(range(len(self.engines)))
            for messages in self.mail[CALL_LATE]:
                messages.append((self.kinds.UTILITY, (0, 0, *self.calls[0])))
        self._turns += 1
        for late, queues in self.mail.items():
            for engine, messages in zip(self.engines, queues, strict=True):
                while messages and not engine.faults.fires(late):
                    engine.get(messages.popleft())
            while self._is_due():
                self._coordinator.step()

    def report(self, report: bytes) -> None:
        self._sockets[1].arrived.append(report)

    def _run(self, engine: "RankEngine") -> None:
        self.meetings.rank = engine.rank
        engine.thread.step()
        outputs = engine.built.core.output_queue
        while not outputs.empty():
            client, output = outputs.get_nowait()
            if client == -1:
                output.engine_index = engine.rank
                self.mail[REPORT_LATE][engine.rank].append(self._encode(output)[0])
            elif (answer := output.utility_output) is None:
                for one in output.outputs:
                    engine.take(engine.built.number_of(one.request_id), one)
            else:
                self._failed = self._failed or answer.failure_message or ""
                self.asked.discard(engine.rank)
                if not self.asked:
                    self.calls.popleft()


class RankRunner(Runner):
    """The executor of a rank: a forward and an update of the weights are meetings of all ranks."""

    group: Group
    asleep: Sequence[str] = ()

    @property
    def is_sleeping(self) -> bool:
        return bool(self.asleep)

    def launch(self, output: Any) -> VllmPass:
        one = super().launch(output)
        if one.entries:
            self.execute_dummy_batch()
        return one

    def execute_dummy_batch(self) -> None:
        if self.asleep:
            raise ForwardWhileAsleep(f"a forward without {' and '.join(self.asleep)}, which are released")
        self.group.meet("forward", "a batch", None)

    def collective_rpc(self, method: Any, *args: Any, **kwargs: Any) -> None:
        if method == UPDATE:
            self.group.meet(UPDATE, "weights", None)

    def sleep(self, level: int) -> None:
        self.asleep = MEMORY
        self.device.lose_kv()

    def wake_up(self, parts: Sequence[str]) -> None:
        self.asleep = [part for part in self.asleep if part not in parts]


class RankPausing(Pausing):
    """The pause of a rank is complete when the release resets its caches."""

    @property
    def is_paused(self) -> bool:
        return self._progress == PauseProgress.COMPLETE

    def pause(self) -> bool:
        self._progress = PauseProgress.BEGUN
        return True

    def finish(self) -> None:
        self.reset(resets_running=True)
        if self.has_begun:
            self._progress = PauseProgress.COMPLETE
            self._engine.log.notice(seen.Paused())

    def resume(self) -> None:
        if self.is_paused:
            self._engine.log.notice(seen.Resumed())
        self._progress = PauseProgress.NONE


class RankEngine(VllmEngine):
    """One rank; the first one moves all of them."""

    forks = False

    def __init__(self, release: VllmRelease, config: VllmConfig, whole: DataParallel) -> None:
        self.rank, self._whole = len(whole.engines), whole
        super().__init__(release, config)
        whole.engines.append(self)
        self.one_sided |= {f"ranks_{one}" for one in EQUALS}
        self.pauses = RankPausing(self)
        self.parts = [self.pauses]
        core, module = self.built.core, import_module("vllm.v1.engine.core")
        core.__class__ = type("RankCore", (module.DPEngineCoreProc,), {"_handle_shutdown": _at_top})
        vars(core).update(AT_START, dp_rank=self.rank, engine_index=self.rank, dp_group=whole.group)
        vars(core).update(
            step_fn=core.step if core.batch_queue is None else core.step_with_batch_queue,
            input_queue=Inbox(),
            output_queue=queue.Queue(),
            shutdown_state=module.EngineShutdownState.RUNNING,
            prefill_schedule_interval=1,
            dp_sync_interval=getattr(core.vllm_config.parallel_config, "dp_sync_interval", None),
            _idle_state_callbacks=[],
            _reset_caches=lambda *_, **__: self.pauses.finish(),
        )
        intercept(core, "abort_requests", self._aborted)
        self.thread = LockstepThread(core.run_busy_loop)
        self.thread.start()

    def make_runner(self, release: VllmRelease) -> Runner:
        runner = RankRunner(release, self.config, self)
        runner.group = self._whole.group
        return runner

    @property
    def is_meeting(self) -> bool:
        """Does it wait in a collective, and not for a message?"""
        return self.thread.held_by not in (None, self.built.core.input_queue.qsize)

    @property
    def has_work(self) -> bool:
        return super().has_work or self._whole.has_work

    def get(self, message: Any) -> None:
        """A message arrives: one to the rank, or a report of the rank at the coordinator."""
        if isinstance(message, bytes):
            self._whole.report(message)
            return
        if message[0] == self._whole.kinds.ABORT:
            self.built.core.aborts_queue.put_nowait(message[1])
        self.built.core.input_queue.put_nowait(message)

    def snapshot(self) -> Snapshot:
        for request in self.requests.live.values():
            request.is_linked = request.req.request_id not in self.built.scheduler.requests
        return super().snapshot()

    def admit(self, req: Any) -> None:
        self._whole.add(self.rank, req)

    def abort(self, request_id: int) -> None:
        message = (self._whole.kinds.ABORT, [self.requests.id_of(request_id)])
        self._whole.mail[CALL_LATE][self.rank].append(message)

    def _aborted(self, original: Callable[..., None], rids: Sequence[str]) -> None:
        original(rids)
        for number in map(self.built.number_of, rids):
            if number in self.requests:
                self.requests.end(number, FinishReason.ABORT)

    def step(self) -> Sequence[Streamed]:
        self.begin_step()
        if self.rank == 0:
            self._whole.turn()
        return self.requests.streamed()

    def pause(self) -> bool:
        return self._call(PAUSE, *[SLEEP] * self.config.pauses.sleeps) and self.pauses.pause()

    def resume(self) -> None:
        self._call(*WAKE * self.config.pauses.sleeps, RESUME)
        self.pauses.resume()

    def reset(self, cause: ResetCause) -> bool:
        """Update the weights in a pause."""
        return cause == ResetCause.WEIGHTS and self.pauses.is_paused and self._call(("collective_rpc", (UPDATE,)))

    def _call(self, *calls: tuple[str, Sequence[Any]]) -> bool:
        """Call methods of all ranks, one after the other."""
        self._whole.calls.extend(calls * (self.rank == 0))
        return True

    def awaits_another(self) -> bool:
        return self._whole.is_busy


class RankSystem(LinkedSystem):
    """One rank, to which some prompts go, and some faults come."""

    def do(self, op: Op) -> bool:
        rank, size = self._sides.index(self), len(self._sides)
        if isinstance(op, Submit) and sum(op.tokens or op.recipe.path) % size != rank:
            return False
        return (not isinstance(op, Inject) or op.rank in (None, rank)) and super().do(op)

    def _send(self, submission: Submission) -> int:
        return EngineSystem._send(self, submission)


def rank_systems(release: VllmRelease, config: VllmConfig) -> list[LinkedSystem]:
    size, systems = config.group.ranks or 1, list[LinkedSystem]()
    whole = DataParallel(release, size)
    engines = [RankEngine(release, config, whole) for _ in range(size)]
    systems += [RankSystem(engine, systems, patience=STEPS_OF_WAVES) for engine in engines]
    return systems


def _at_top(core: Any) -> bool:
    """The end of a turn of the loop, which goes on in the next step."""
    assert LockstepThread.running is not None
    LockstepThread.running.wait()
    return True
