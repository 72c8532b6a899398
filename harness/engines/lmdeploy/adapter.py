"""A release of lmdeploy behind EnginePort: its PyTorch engine with loop and scheduler, but not its workers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import swarden.invariants.events as seen
from swarden.harness.core.event_log import EventLog
from swarden.harness.core.faults import CLIENT_FAULTS, FaultPlan
from swarden.harness.core.origins import EngineCode
from swarden.harness.core.port import EnginePort, Streamed, Submission
from swarden.harness.engines.lmdeploy.boot import PAGING, LmdeployRelease
from swarden.harness.engines.lmdeploy.capture import LmdeployCapture
from swarden.harness.engines.lmdeploy.config import BLOCKS, STATES, LmdeployConfig
from swarden.harness.engines.lmdeploy.core import Hooks, build
from swarden.harness.engines.lmdeploy.model import TagLayers
from swarden.harness.engines.lmdeploy.passes import Entry
from swarden.harness.engines.lmdeploy.requests import LmdeployRequests
from swarden.harness.kit import loops, tags
from swarden.harness.kit.calls import intercept
from swarden.harness.kit.owners import Owners
from swarden.harness.kit.passes import Passes
from swarden.harness.kit.reported import OF_CLIENTS, OF_OWNERS, OF_PASSES, names_of
from swarden.harness.kit.tags import ReadTags
from swarden.invariants import reference, view
from swarden.invariants.events import REQUEST_KIND, TREE, Owner
from swarden.invariants.reuse import sharing
from swarden.invariants.view import FREE

CODE = EngineCode(
    "lmdeploy",
    ledgers=f"lmdeploy.{PAGING}.block_manager.base_block_manager",
    stand_ins=[f"{__package__}.model", f"{__package__}.core", tags.__name__, loops.__name__],
)
REPORTED = names_of(
    [*OF_PASSES, *OF_OWNERS, *OF_CLIENTS, seen.Admitted, seen.Retracted, seen.CopiedIn, seen.Paused, seen.Resumed]
)
# Laws that could not fail: the adapter reports the pauses that it shows, says whose results count, and counts the
# tokens of passes in flight; it rounds the lengths that are shared to blocks, and only a window has a frontier beside.
ONE_SIDED = frozenset({"pauses_are_reported", "discarded_results_are_stale", "launched_tokens_are_in_flight"})
ONE_SIDED_WITHOUT_WINDOW = frozenset({"cursors_are_page_aligned"})
UNREPORTED = seen.ALL_EVENTS - REPORTED | names_of([seen.Proposed, seen.Verified]) | ONE_SIDED
WAITING, ACTIVE = "WAITING", ("READY", "RUNNING")  # statuses of a request in the release


class Sleep(Enum):
    """A sleep begins while passes are in flight, and is complete when the engine has given up its memory."""

    NONE = 0
    BEGUN = 1
    COMPLETE = 2


class LmdeployEngine(EnginePort):
    """One engine; a step delivers the output of a pass, and lets the loop run until it awaits the next one."""

    def __init__(self, release: LmdeployRelease, config: LmdeployConfig) -> None:
        self.log = EventLog(code=CODE)
        self.faults = FaultPlan(CLIENT_FAULTS, on_fire=lambda fault: self.log.notice(seen.Fired(fault)))
        self.core = build(
            release, config, TagLayers(config, self._read), Hooks(self._launch, self._complete, self._slept)
        )
        self._requests = LmdeployRequests(release, self.core, self.log.notice)
        self._capture = LmdeployCapture(config, self.core, self._requests)
        self._passes = Passes[Entry]()
        self._running: Sequence[Any] = ()  # the requests of the pass that is being made
        self._owner: Owner | None = None  # the request for which the release works
        self._steps, self._sleep, self._sleeps = 0, Sleep.NONE, False
        self._follow()
        self._after = self._found()

    def reference(self) -> reference.Reference:
        return reference.Reference(tags.VOCABULARY, tuple([component.window for component in self._capture.components]))

    @property
    def has_work(self) -> bool:
        return bool(self._requests or self._passes.in_flight)

    def submit(self, submission: Submission) -> int:
        return self._requests.submit(submission)

    def abort(self, request_id: int) -> None:
        self._requests.abort(request_id)

    def step(self) -> Sequence[Streamed]:
        self._steps += 1
        self.core.deliver()
        while self._sleep is Sleep.COMPLETE and self._passes.in_flight:  # they have ended in vain
            self._complete()
        self._wake()
        return self._requests.streamed()

    def pause(self) -> bool:
        """As Engine.sleep: once the awaited output of a pass has come, all requests end, and the KV is lost."""
        self._sleeps = True
        if self._sleep is Sleep.NONE:
            self._sleep = Sleep.BEGUN
            self.core.loop.start(self.core.engine.sleep)
        return True

    def resume(self) -> None:
        """As Engine.wakeup; an engine whose sleep has not begun yet wakes up after it has."""
        self._sleeps = False
        self._wake()

    def clear(self) -> None:
        trie = self.core.scheduler.block_trie
        trie.evict(len(self._capture.owners[0].owner_of))
        trie.state_checkpoints.evict(len(self._capture.owners[-1].owner_of))

    def capture(self) -> view.Snapshot:
        self._report(self._capture.settle())
        self._after = sharing(self._after, self._found())
        return self._after

    def _slept(self) -> None:
        self._sleep = Sleep.COMPLETE
        self.log.notice(seen.Paused())

    def _wake(self) -> None:
        if self._sleep is Sleep.COMPLETE and not self._sleeps:
            self._sleep = Sleep.NONE
            self.log.notice(seen.Resumed())
            self.core.engine.wakeup()

    def _found(self) -> view.Snapshot:
        one_sided = ONE_SIDED_WITHOUT_WINDOW if self._capture.components[0].window is None else frozenset()
        snapshot = self._capture.capture(self._steps, self._passes.in_flight, UNREPORTED | one_sided)
        return replace(snapshot, is_paused=self._sleep is Sleep.COMPLETE)

    def _report(self, events: Iterable[NamedTuple]) -> None:
        for event in events:
            self.log.notice(event)

    def _follow(self) -> None:
        """Follow the calls that make a pass, move blocks and states, and those that change the status of a request."""
        scheduler, owners = self.core.scheduler, self._capture.owners
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
        before, self._owner = self._owner, Owner(REQUEST_KIND, seq.session_id)
        try:
            return original(seq, *args, **kwargs)
        finally:
            self._owner = before

    def _free(self, original: Callable[..., Any], seq: Any) -> None:
        if seq.status.name == WAITING:
            self._requests.retract(seq.session_id)
        self._for_a_request(original, seq)

    def _taken(self, owners: Owners, original: Callable[..., Any], *args: Any) -> Any:
        taken, owner = original(*args), self._owner or TREE
        self._report(owners.take(_ids(taken), lambda _: owner))
        return taken

    def _freed(self, owners: Owners, original: Callable[..., Any], units: Any) -> Any:
        freed = _ids(units)
        self._report(owners.free(freed, lambda unit: self._freeing(owners.owner_of.get(unit, FREE))))
        return original(units)

    def _freeing(self, owner: Owner) -> Owner:
        """The owner that frees a unit: the cache that has it, or the request for which the release works."""
        return owner if owner == TREE or self._owner is None else self._owner

    def _status(self, seq: Any, before: str, after: str) -> None:
        if before == WAITING and after in ACTIVE:
            self._requests.admit(seq.session_id, seq.num_history_ids)
        elif before in ACTIVE and after not in ACTIVE:
            self._requests.stop_running(seq.session_id)

    def _make(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        payload = original(*args, **kwargs)
        self._running = payload["running"] if payload is not None else ()
        return payload

    def _launch(self, payload: Any) -> None:
        """Report the pass that the executor gets; the blocks that it fills are already in the cache."""
        self._report(self._capture.settle())
        inputs = payload["inputs"]
        if inputs is None:
            starts = [self._launched_len(seq) for seq in self._running]
            lens = [payload["delta"].max_q_seqlen] * len(starts)
        else:
            starts, lens = inputs.history_lengths.tolist(), inputs.seq_length.tolist()
        positions = zip(self._running, starts, lens, strict=True)
        flight = self._passes.launch([self._entry(seq, start, start + count) for seq, start, count in positions])
        self.log.notice(flight.launched())
        self._copy_in(payload["cache_inputs"])
        size = self._capture.components[0].page_size
        for entry in flight.entries:
            for index, units in enumerate(entry.units):
                written = units if index else units[entry.start // size : -(-entry.end // size)]
                pool = self._capture.components[index].pool
                self.log.notice(
                    seen.Written(flight.launch, entry.request, pool, entry.start, entry.end, tuple(written), index)
                )

    def _launched_len(self, seq: Any) -> int:
        return self._capture.launched_len(seq.session_id, seq, self._passes.in_flight)

    def _entry(self, seq: Any, start: int, end: int) -> Entry:
        request = self._requests.live.get(seq.session_id)
        units = (self._capture.table(seq), (max(0, seq.logical_state),))[: len(self._capture.components)]
        return Entry(seq.session_id, start, end, request.run if request is not None else -1, units, seq)

    def _copy_in(self, copies: Any) -> None:
        """Report the copies of checkpoints to the blocks and the states of requests, which come before a pass."""
        blocks = getattr(copies, "kv_restore_plan", None)
        states = getattr(copies, "state_restore_plan", None)
        targets = [(BLOCKS, blocks[1].tolist() if blocks is not None else ()), (STATES, states[1] if states else ())]
        for pool, units in targets:
            if units:
                self.log.notice(seen.CopiedIn(pool, tuple(units), Owner(REQUEST_KIND)))

    def _read(self, index: int, reads: Sequence[ReadTags]) -> None:
        flight = self._passes.in_flight[0]
        for component, read in enumerate(reads):
            pool, request = self._capture.components[component], flight.entries[index].request
            start = flight.entries[index].start
            known = read.tags[: start - read.first] if pool.has_states else read.tags
            flight.reports.append(seen.Read(flight.launch, request, pool.pool, read.first, known, component))

    def _complete(self) -> None:
        flight = self._passes.complete(self._passes.in_flight[0])
        self._report(flight.completed(self._requests.counts))


def _ids(units: Any) -> list[int]:
    """The ids of `units`: one state, or an array of blocks."""
    return [int(unit) for unit in units] if hasattr(units, "__len__") else [int(units)]
