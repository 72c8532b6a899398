"""Pause, sleep: also the resets of the caches.

Real: the parts of `pause_generation(mode="keep")` and of `sleep` at level 1, in order: passes and copies end, then
`reset_prefix_cache` with running requests and connector.
Stand-in: the process that composes them. A sleep discards all KV. No pause during a load, which a release does not
support.
Shows: KV that survives a sleep.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any

from swarden.harness.engines.vllm.parts.part import VllmEngine
from swarden.harness.kit.launch import Line, table
from swarden.harness.kit.part import Part
from swarden.harness.kit.settings import Drawn, PartSettings
from swarden.invariants.events import CacheReset, Paused, Resumed
from swarden.invariants.view import Snapshot

AWAKE: dict[str, Sequence[Any]] = {"sleeps": (False,)}


class Pauses(PartSettings, frozen=True):
    """`resets_running`: a flush preempts the running requests (reset_prefix_cache with reset_running_requests).

    `sleeps`: a pause is a sleep at level 1, which discards the KV.
    """

    launch_table = table(sleeps=(Line.has, "enable-sleep-mode"))

    resets_running: Annotated[bool, Drawn((False, False, True))] = False
    sleeps: Annotated[bool, Drawn((False, False, True))] = False


class PauseProgress(Enum):
    """A pause begins while passes are in flight, and is complete when all have completed."""

    NONE = 0
    BEGUN = 1
    COMPLETE = 2


class Pausing(Part):
    """The pauses and the resets of an engine core, which are refused during a load."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine, self._built, self._settings = engine, engine.built, engine.config.pauses
        release = engine.runner.release
        self._states = release.code("PauseState")
        self._can_reset_connector = any(part.can_reset(release) for part in engine.config.parts)
        self._progress = PauseProgress.NONE

    @property
    def has_begun(self) -> bool:
        """Whether a pause waits for passes."""
        return self._progress == PauseProgress.BEGUN

    @property
    def is_paused(self) -> bool:
        """Whether the release is paused; for a client, a pause that waits for passes has not begun yet."""
        return not self.has_begun and bool(self._built.scheduler.pause_state != self._states.UNPAUSED)

    def views(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, is_paused=True) if self.is_paused else snapshot

    def flush(self) -> bool:
        """reset_prefix_cache, which does nothing while a request has blocks, unless it preempts all of them."""
        if not self._settings.resets_running:
            return self.reset(resets_running=False)
        return not self._is_loading and self.reset(resets_running=True, resets_connector=self._can_reset_connector)

    def pause(self) -> bool:
        """As pause_generation with mode "keep", or sleep: passes in flight complete, then the running requests are
        preempted, and the caches are reset.

        Not during a load, where a release says that its reset is not supported.
        """
        if self._is_loading:
            return False
        self._built.scheduler.set_pause_state(self._states.PAUSED_ALL)
        self._progress = PauseProgress.BEGUN
        self.finish()
        return True

    def resume(self) -> None:
        if self._progress == PauseProgress.COMPLETE:
            self._engine.log.notice(Resumed())
        self._progress = PauseProgress.NONE
        self._built.core.resume_scheduler()

    def finish(self) -> None:
        """A pause that has begun is complete if nothing goes on for which it waits, as has_work of EngineCoreProc."""
        engine = self._engine
        is_busy = bool(engine.runner.in_flight or engine.runner.loads or engine.moves.copies)
        is_busy |= self._built.scheduler.has_requests()
        if self.has_begun and not is_busy and not any(part.is_busy for part in engine.parts):
            self._progress = PauseProgress.COMPLETE
            self.reset(resets_running=True, resets_connector=self._can_reset_connector)
            if self._settings.sleeps:
                engine.runner.device.lose_kv()
            engine.log.notice(Paused())

    def reset(self, *, resets_running: bool, resets_connector: bool = False) -> bool:
        """Reset the cache of the release; returns whether it did.

        If blocks wait for passes in flight, a release raises an error; its client gets it, and the engine goes on.
        """
        scheduler = self._built.scheduler
        if resets_running:
            for request in self._engine.requests.live.values():
                if any(request.req is req for req in scheduler.running):
                    request.run += 1  # the results of passes in flight are not used
        try:
            is_done = bool(self._built.core.reset_prefix_cache(resets_running, resets_connector))
        except RuntimeError:
            if not getattr(scheduler, "deferred_frees", ()):
                raise
            is_done = False
        self._engine.log.notice(CacheReset(is_done, 0, is_copying=False))
        return is_done

    @property
    def _is_loading(self) -> bool:
        """Whether a request that does not run, a copy or the harness has blocks: no release resets its cache then."""
        if self._engine.moves.blocks.outside or self._engine.moves.copies:
            return True
        running = {req.request_id for req in self._built.scheduler.running}
        tables = self._built.tables
        return any(blocks and rid not in running for table in tables for rid, blocks in table.req_to_blocks.items())
