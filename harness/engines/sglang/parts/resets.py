"""Resets of a scheduler, and the release of its memory: the commands are the release's, the memory is a stand-in."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import swarden.invariants.events as seen
from swarden.harness.core.ops import ResetCause
from swarden.harness.engines.sglang.capability import SglangEngine, SglangPart
from swarden.harness.engines.sglang.states import states_of
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.released_code import known, parameters
from swarden.harness.kit.stand_ins import Missing, Silent
from swarden.invariants.laws.lifecycle.resets import can_be_reset

KV_MEMORY = Missing(tags=["kv_cache"])  # the argument of the commands that release it and take it back
IN_PLACE = "in_place"  # the mode of a pause that keeps the KV of running requests
FLUSHES = Missing(flush_cache=True)  # of an update of weights; it frees no memory of the device


class SglangResets(SglangPart):
    """The commands on one scheduler.

    `idle_steps` are the last steps in which no request was unfinished, or the engine was paused.
    """

    def __init__(self, engine: SglangEngine) -> None:
        self.idle_steps = 0
        self._scheduler, self._engine, self._notice = engine.scheduler, engine, engine.log.notice
        self._has_memory, self._num_resets, self._lost_copy = True, 0, False
        self._updater = self._updater_of(engine.release.code("WeightUpdater"))
        intercept(engine.memory.tree, "reset", self._reset_and_lose_kv)

    def stepped(self) -> None:
        is_busy = self._engine.requests.unfinished and not self._scheduler._engine_paused
        self.idle_steps = 0 if is_busy else self.idle_steps + 1

    def pause(self, mode: str) -> bool:
        self.idle_steps = 0
        self._notice(seen.Paused(keeps=mode == IN_PLACE))
        self._scheduler.pause_generation(Missing(mode=mode))
        return True

    def resume(self) -> None:
        self.idle_steps = 0
        self._restore_memory()
        if self._scheduler._engine_paused:
            self._notice(seen.Resumed())
        self._scheduler.continue_generation(Missing(torch_empty_cache=False))

    def reset(self, cause: ResetCause) -> bool:
        """Give the command, and report its answer; False if no client may release the memory now."""
        if any(part.is_busy for part in self._engine.parts):  # a copy to the host goes on to the storage
            self.idle_steps = 0
        is_copying = any(part.is_in_flight for part in self._engine.parts)  # in the command the release may ask again
        before = self._engine.snapshot()
        if cause == ResetCause.MEMORY:
            without_sessions = before if before.requests else replace(before, records=())
            if not self._has_memory or not can_be_reset(without_sessions, self.idle_steps, is_copying=is_copying):
                return False
        self._lost_copy = False
        is_done = self._command(cause)
        self._notice(seen.CacheReset(is_done, self.idle_steps, self._lost_copy if is_done else is_copying))
        if not self._scheduler._engine_paused:
            self._restore_memory()
        return True

    def _reset_and_lose_kv(self, reset: Callable[[], None]) -> None:
        """What a reset drops is never read again."""
        self._num_resets += 1
        for memory in self._engine.forward.tags:
            memory.clear()
        if (states := states_of(self._engine.memory.rows)) is not None:
            states.clear()
        lost = [part.lose_kv() for part in self._engine.parts]
        self._lost_copy = any(lost)
        reset()

    def _restore_memory(self) -> None:
        """Take the memory of the KV back, empty, if it was released."""
        if not self._has_memory:
            self._has_memory = True
            self._updater.resume_memory_occupation(KV_MEMORY)

    def _command(self, cause: ResetCause) -> bool:
        """Whether the release says that it has done it, or has done it if it says nothing."""
        num_resets, update = self._num_resets, self._updater.flush_cache_after_weight_update
        if cause == ResetCause.CLIENT:
            return bool(self._flush())
        if cause == ResetCause.MEMORY:
            self._has_memory = False
            self._updater.release_memory_occupation(KV_MEMORY)
        elif "success" in parameters(update):
            return bool(update(FLUSHES, True, "")[0])
        else:
            update(FLUSHES)
        return self._num_resets > num_resets

    def _flush(self, **_: Any) -> Any:
        flush = self._scheduler.flush_cache  # that of the device's allocator has no KV
        return flush(**({"empty_cache": False} if "empty_cache" in parameters(flush) else {}))

    def _updater_of(self, kind: Any) -> Any:
        """The release's object with the commands; in old releases the scheduler."""
        rows = self._engine.memory.rows
        saver = Silent(pause=lambda tag: rows.req_to_token.zero_())  # lost, too; the reset that follows loses the KV
        if kind is None:
            vars(self._scheduler).update(memory_saver_adapter=saver, offload_tags=set())
            return self._scheduler
        alone = type("Updater", (kind,), {"__slots__": (), "__post_init__": lambda self: None})  # without other ranks
        beside: dict[str, Any] = {"draft_worker": None, "memory_saver_adapter": saver, "tp_cpu_group": None}
        beside |= {"flush_cache": self._flush, "is_fully_idle": self._scheduler.is_fully_idle}
        return alone(tp_worker=Silent(), scheduler=self._scheduler, **known(beside, kind))
