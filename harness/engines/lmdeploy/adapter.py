"""A release of lmdeploy behind EnginePort: its PyTorch engine with loop and scheduler, but not its workers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import swarden.invariants.events as seen
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import Streamed, Submission
from swarden.harness.engines.lmdeploy.boot import PAGING, LmdeployRelease
from swarden.harness.engines.lmdeploy.capture import LmdeployFacts
from swarden.harness.engines.lmdeploy.config import BLOCKS, STATES, LmdeployConfig
from swarden.harness.engines.lmdeploy.core import Hooks, build
from swarden.harness.engines.lmdeploy.model import TagLayers
from swarden.harness.engines.lmdeploy.requests import LmdeployRequests
from swarden.harness.kit import loops, tags
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.owners import Owners, Worker
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, names_of
from swarden.harness.kit.tags import ReadTags
from swarden.invariants.events import REQUEST_KIND, Owner

CODE = EngineCode(
    "lmdeploy",
    ledgers=f"lmdeploy.{PAGING}.block_manager.base_block_manager",
    stand_ins=[f"{__package__}.model", f"{__package__}.core", tags.__name__, loops.__name__],
)
REPORTED = names_of([*OF_PASSES, *OF_OWNERS, *OF_CLIENTS]) - names_of([seen.Proposed, seen.Verified])
OF_SCHEDULER = names_of([seen.Admitted, seen.Retracted, seen.CopiedIn, seen.Paused, seen.Resumed])
# Laws that could not fail: the adapter reports the pauses that it shows, says whose results count, and counts the
# tokens of passes in flight; it rounds the lengths that are shared to blocks, and only a window has a frontier beside.
ONE_SIDED = frozenset({"pauses_are_reported", "discarded_results_are_stale", "launched_tokens_are_in_flight"})
ONE_SIDED_WITHOUT_WINDOW = frozenset({"cursors_are_page_aligned"})
WAITING, ACTIVE = "WAITING", ("READY", "RUNNING")  # statuses of a request in the release


class LmdeployEngine(LmdeployFacts):
    """One engine; a step delivers the output of a pass, and lets the loop run until it awaits the next one."""

    code = CODE
    reported = REPORTED | OF_SCHEDULER
    vocabulary = tags.VOCABULARY

    def __init__(self, release: LmdeployRelease, config: LmdeployConfig) -> None:
        super().__init__(config)
        self.one_sided = ONE_SIDED if config.window is not None else ONE_SIDED | ONE_SIDED_WITHOUT_WINDOW
        self.core = build(
            release, config, TagLayers(config, self._read), Hooks(self._launch, self._complete, self._slept)
        )
        self.requests = LmdeployRequests(release, self.core, self.log.notice)
        self._running: Sequence[Any] = ()  # the requests of the pass that is being made
        self._worker = Worker(self.report)
        self._shall_sleep = self._has_begun = False  # a sleep begins while passes are in flight; then it is paused
        self._follow()

    def submit(self, submission: Submission) -> int:
        return self.requests.submit(submission)

    def abort(self, request_id: int) -> None:
        self.requests.abort(request_id)

    def step(self) -> Sequence[Streamed]:
        self.begin_step()
        self.core.deliver()
        while self.is_paused and self.passes.in_flight:  # they have ended in vain
            self._complete()
        self._wake()
        return self.requests.streamed()

    def pause(self) -> bool:
        """As Engine.sleep: once the awaited output of a pass has come, all requests end, and the KV is lost."""
        self._shall_sleep = True
        if not self._has_begun:
            self._has_begun = True
            self.core.loop.start(self.core.engine.sleep)
        return True

    def resume(self) -> None:
        """As Engine.wakeup; an engine whose sleep has not begun yet wakes up after it has."""
        self._shall_sleep = False
        self._wake()

    def clear(self) -> None:
        trie = self.core.scheduler.block_trie
        trie.evict(len(self.owners[0].owner_of))
        trie.state_checkpoints.evict(len(self.owners[-1].owner_of))

    def _slept(self) -> None:
        self.is_paused = True
        self.log.notice(seen.Paused())

    def _wake(self) -> None:
        if self.is_paused and not self._shall_sleep:
            self._has_begun = self.is_paused = False
            self.log.notice(seen.Resumed())
            self.core.engine.wakeup()

    def _follow(self) -> None:
        """Follow the calls that make a pass, move blocks and states, and those that change the status of a request."""
        scheduler, owners = self.core.scheduler, self.owners
        self.core.engine.seq_meta.on_status = self._status
        intercept(self.core.inputs_maker, "_make_forward_inputs", self._make)
        for name in ("allocate", "truncate", "free"):
            if hasattr(scheduler.block_manager, name):
                intercept(scheduler.block_manager, name, self._free if name == "free" else self._for_a_request)
        ledgers = [self.core.allocator._gpu_allocator]
        if len(owners) > 1:
            intercept(scheduler.state_manager, "allocate", self._for_a_request)
            intercept(scheduler.state_manager, "free", self._for_a_request)
            ledgers.append(scheduler.state_manager.allocator)
        for ledger, of_pool in zip(ledgers, owners, strict=True):
            intercept(ledger, "allocate", partial(self._taken, of_pool))
            intercept(ledger, "free", partial(self._freed, of_pool))

    def _for_a_request(self, original: Callable[..., Any], seq: Any, *args: Any, **kwargs: Any) -> Any:
        return self._worker.works_for(seq.session_id, original, seq, *args, **kwargs)

    def _free(self, original: Callable[..., Any], seq: Any) -> None:
        if seq.status.name == WAITING:
            self.requests.retract(seq.session_id)
        self._for_a_request(original, seq)

    def _taken(self, owners: Owners, original: Callable[..., Any], *args: Any) -> Any:
        taken = original(*args)
        self._worker.take(owners, _ids(taken))
        return taken

    def _freed(self, owners: Owners, original: Callable[..., Any], units: Any) -> Any:
        self._worker.free(owners, _ids(units))
        return original(units)

    def _status(self, seq: Any, before: str, after: str) -> None:
        if before == WAITING and after in ACTIVE:
            self.requests.admit(seq.session_id, seq.num_history_ids, resumes=True)
        elif before in ACTIVE and after not in ACTIVE:
            self.requests.stop_running(seq.session_id)

    def _make(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        payload = original(*args, **kwargs)
        self._running = payload["running"] if payload is not None else ()
        return payload

    def _launch(self, payload: Any) -> None:
        """Report the pass that the executor gets; the blocks that it fills are already in the cache."""
        self.report(self.settle())
        inputs = payload["inputs"]
        if inputs is None:
            starts = [self.launched_len(seq.session_id, seq.num_history_ids) for seq in self._running]
            lens = [payload["delta"].max_q_seqlen] * len(starts)
        else:
            starts, lens = inputs.history_lengths.tolist(), inputs.seq_length.tolist()
        entries = [
            self.entry(seq.session_id, start, start + count, self.units_of(seq), seq)
            for seq, start, count in zip(self._running, starts, lens, strict=True)
        ]
        flight = self.launch(entries)
        self._copy_in(payload["cache_inputs"])
        self.report_written(flight)

    def _copy_in(self, copies: Any) -> None:
        """Report the copies of checkpoints to the blocks and the states of requests, which come before a pass."""
        blocks = getattr(copies, "kv_restore_plan", None)
        states = getattr(copies, "state_restore_plan", None)
        targets = [(BLOCKS, blocks[1].tolist() if blocks is not None else ()), (STATES, states[1] if states else ())]
        for pool, units in targets:
            if units:
                self.log.notice(seen.CopiedIn(pool, tuple(units), Owner(REQUEST_KIND)))

    def _read(self, index: int, reads: Sequence[ReadTags]) -> None:
        for component, read in enumerate(reads):
            self.read(self.passes.in_flight[0], index, component, read)

    def _complete(self) -> None:
        self.complete(self.passes.in_flight[0])


def _ids(units: Any) -> list[int]:
    """The ids of `units`: one state, or an array of blocks."""
    return [int(unit) for unit in units] if hasattr(units, "__len__") else [int(units)]
