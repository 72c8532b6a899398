"""Engines that are perturbed: each perturbation must be noticed at the first read that matters, and nothing else."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.engine import Engine
from swarden.engine_under_test.ports import ForwardBatch
from swarden.engine_under_test.units import lookback
from swarden.harness.core.faults import FaultPlan
from swarden.harness.core.ops import Op, Step
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.own.adapter import SwardenEngine
from swarden.harness.engines.own.content.level import Content
from swarden.harness.engines.own.live import live_of
from swarden.harness.engines.own.target import side_systems
from swarden.harness.strict.census import Census
from swarden.invariants.events import (
    CHECKED,
    OF_OBSERVERS,
    CopyBegan,
    CopyEnded,
    Filled,
    Freed,
    Launched,
    Sent,
    StepBegan,
    StepEnded,
)
from swarden.invariants.violation import Violation
from tests.quality.perturbed.changes import (
    CHANGES,
    COPIED,
    SENT,
    Blamed,
    Crossing,
    Slot,
    perturb_arrival,
    perturb_copy,
)

SWEPT_PAGES = 2  # so few that most slots are read before they are swept


class Unnoticed(AssertionError):
    """A perturbation was read, and the level content has not noticed it."""


class Misattributed(AssertionError):
    """The level content has blamed something else than the perturbation, or something beside it."""


class Noticed(Exception):
    """The level content has noticed the perturbation."""


class PerturbationWatch:
    """The observer of a perturbed engine: makes the perturbations, and judges what the level content says of them.

    One perturbation is `open` at a time, until it is noticed or its page is freed.  It is `due` once it has been read:
    it must be noticed by the end of that step.
    """

    def __init__(self, engine: Engine, faults: FaultPlan) -> None:
        self.open: Blamed | None = None
        self._engine = engine
        self._faults = faults
        self._is_due = False
        self._num_steps = 0
        self._copies: dict[int, CopyBegan] = {}
        live = live_of(engine)
        census = Census(live)
        content = Content(engine, census, 1.0, num_swept=SWEPT_PAGES)
        self._handlers = (live.handlers, content.handlers, census.handlers)

    def notice(self, event: object) -> None:
        self._before_check(event)
        for handlers in self._handlers:
            handler = handlers.get(type(event))
            if handler is not None and (violations := handler(event)):
                self._judge(violations)
        if isinstance(event, StepEnded) and self._is_due:
            raise Unnoticed(f"{_text(self.open)}: it was read, and was not noticed")

    def _before_check(self, event: object) -> None:
        """Make the perturbation of this moment, and note whether the open one is read or freed."""
        match event:
            case StepBegan():
                self._num_steps += 1
                for fault, change in CHANGES.items():
                    self._perturb(fault, partial(change, self._engine))
            case Freed() if self.open is not None and not self._is_due:
                slot = self.open.changed
                if slot is not None and slot.pool == event.pool and slot.page in event.units:
                    self.open = None
            case Launched():
                batch = self._engine.scheduler.pipeline.flights[-1].batch
                self._note_read(lambda slot: _is_read(slot, batch))
            case Sent():
                self._note_read(lambda slot: slot.pool == event.pool and slot.page in event.pages)
            case CopyBegan():
                self._copies[event.job] = event
            case CopyEnded():
                copy = self._copies.pop(event.job)
                if event.failure is None:
                    self._note_read(lambda slot: slot.page in self._sources(copy, slot.pool))
                    self._perturb(COPIED, lambda crossing: perturb_copy(self._engine, copy, crossing))
            case Filled():
                self._perturb(SENT, lambda crossing: perturb_arrival(self._engine, event, crossing))

    def _perturb(self, fault: str, change: Callable[[Crossing], Blamed | None]) -> None:
        if self.open is None:
            chance = Random(f"{fault} in step {self._num_steps}")
            self.open = change(Crossing(lambda: self._faults.fires(fault), chance))
            self._is_due = self.open is not None and self.open.changed is None

    def _note_read(self, is_read: Callable[[Slot], bool]) -> None:
        if self.open is not None and self.open.changed is not None and is_read(self.open.changed):
            self._is_due = True

    def _sources(self, copy: CopyBegan, pool: str) -> Sequence[int]:
        """The pages of a pool that a copy reads."""
        memory = self._engine.memory
        assert memory.host is not None, "a copy job without a host"
        names = [one.name for one in (memory.pools if copy.to_host else memory.host.pools)]
        on_device = [one.name for one in memory.pools]
        return [
            page
            for of_pool, here, there in copy.pages
            if names[on_device.index(of_pool)] == pool
            for page in (here if copy.to_host else there)
        ]

    def _judge(self, violations: Sequence[Violation]) -> None:
        if self.open is not None and self.open.is_alone_in(violations):
            raise Noticed
        found = "; ".join(f"{one.law}: {one.subject}, {dict(one.values)}" for one in violations)
        raise Misattributed(f"{_text(self.open)}; blamed was {found}")


class PerturbedRun:
    """One engine, or the two sides of a pair, with perturbations as faults; it ends once a perturbation is noticed."""

    def __init__(self, configs: Sequence[EngineConfig], model: str = "") -> None:
        checked = [replace(config, poison_freed_pages=True, checksum_transfers=True) for config in configs]
        self.is_noticed = False
        self._systems: Sequence[EngineSystem] = (
            side_systems(checked) if len(checked) > 1 else [EngineSystem(SwardenEngine(checked[0], model))]
        )
        self._watches = [_watch(system.port) for system in self._systems]

    @property
    def is_open(self) -> bool:
        """Whether a perturbation was made, and was neither noticed nor freed."""
        return any(watch.open is not None for watch in self._watches)

    def play(self, ops: Iterable[Op]) -> None:
        """Apply ops until a perturbation is noticed; raises Unnoticed or Misattributed."""
        try:
            for op in ops if not self.is_noticed else ():
                for _ in range(op.count if isinstance(op, Step) else 1):
                    self._systems[op.engine].do(op)
                    self._systems[op.engine].take_events()
        except Noticed:
            self.is_noticed = True


def _watch(port: object) -> PerturbationWatch:
    assert isinstance(port, SwardenEngine), f"{port} is not swarden's own engine"
    port.faults.known |= {*CHANGES, COPIED, SENT}
    watch = PerturbationWatch(port.engine, port.faults)
    port.log.forward_to(watch.notice, *(CHECKED | OF_OBSERVERS))
    return watch


def _is_read(slot: Slot, batch: ForwardBatch) -> bool:
    """Whether a pass reads a slot."""
    for pool in batch.pools:
        pages = pool.pages.tolist()
        for entry, span in zip(batch.entries, pool.spans, strict=True) if pool.name == slot.pool else ():
            first = 0 if pool.window is None else max(0, entry.start - lookback(pool.window))
            for position in range(first, entry.start):
                place, offset = divmod(position - span.first_position, batch.page_size)
                if (pages[span.begin + place], offset) == (slot.page, slot.offset):
                    return True
    return False


def _text(changed: Blamed | None) -> str:
    return f"changed was {changed.subject}, {changed.value}" if changed is not None else "nothing was changed"
