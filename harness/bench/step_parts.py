"""The cost of a checked step by its parts, for several engines under the same ops.

The parts come from samples of the stack in equal intervals of CPU time, which need no change of any engine.
"""

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time
from types import FrameType
from typing import Any

from swarden.harness.core import driver as driving
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Drain, Op, Recipe, Step, Submit
from swarden.harness.core.origins import is_within, module_of
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of
from swarden.harness.core.target import Pool, Shape, Target, prepare
from swarden.invariants import reference

ENGINE, MODEL, PORT, CAPTURE, EVENTS, LAWS, REST = "engine", "model", "port", "capture", "events", "laws", "rest"
PARTS = {  # by the method that the driver calls; PORT without the engine's own code and the model
    "do": PORT,
    "capture": CAPTURE,
    "take_events": EVENTS,
    "check": LAWS,
}
SAMPLE_S = 0.001
CPU_SECONDS = 20.0
REQUESTS = 40
STEPS_PER_REQUEST = 5
OUTPUT_LENS = (26, 22, 30)
PAGE_SIZES = (1, 4)


@dataclass(frozen=True, slots=True)
class StepParts:
    """Checked steps per second of CPU of one engine, and the microseconds of each part of a step.

    ENGINE is the engine's own code, MODEL the stand-in for its model, PORT its adapter with the reports of events;
    REST has the driver and the digests.
    """

    engine: str
    page_size: int
    steps: int
    steps_per_second: float
    us: dict[str, float]

    @property
    def added(self) -> float:
        """The share that the harness adds to a step, relative to the engine's own step with its model."""
        own = self.us[ENGINE] + self.us[MODEL]
        return (sum(self.us.values()) - own) / own

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {us:.0f}" for name, us in self.us.items())
        return (
            f"{self.engine}, pages of {self.page_size}: {self.steps_per_second:.0f} checked steps a second of CPU; "
            f"us a step: {parts}; the harness adds {self.added:.2f} of the engine's own step"
        )


class Sampler:
    """Counts samples of the running code by part, in equal intervals of CPU time."""

    def __init__(self, target: Target) -> None:
        self.counts: Counter[str] = Counter()
        self._code = target.code

    @contextmanager
    def running(self) -> Iterator[None]:
        before = signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        self.counts[self._part(frame)] += 1

    def _part(self, frame: FrameType | None) -> str:
        """The part of a sample, by the driver's call that runs; within a call of the engine, by the innermost code."""
        inner, called = "", ""
        while frame is not None and frame.f_globals is not vars(driving):
            inner = inner or (ENGINE if self._code.has(frame) else self._part_of_ours(frame))
            called, frame = frame.f_code.co_name, frame.f_back
        part = PARTS.get(called, REST)
        return inner if part == PORT and inner else part

    def _part_of_ours(self, frame: FrameType) -> str:
        """The part of a module of this project.

        "" for a module of others, such as torch, and for the functions of tags, which stand-ins and ports call.
        """
        module = module_of(frame)
        if module in self._code.stand_ins:
            return MODEL
        return PORT if is_within(module, "swarden") and module != reference.__name__ else ""


def measure(engines: Sequence[str], *, seconds: float = CPU_SECONDS) -> list[StepParts]:
    """Measure each engine in turn, with pages of each size."""
    return [_measured(engine, page_size, seconds) for page_size in PAGE_SIZES for engine in engines]


def _measured(engine: str, page_size: int, seconds: float) -> StepParts:
    target = target_of(engine)
    prepare(target)
    shape = Shape(page_size, (Pool("full", 128 // page_size), Pool("swa", 72 // page_size, 9)), 16, 4, 128)
    header = Header(engine=target.name, version=target.version(), configs=[target.encode(target.config_of(shape))])
    sampler, steps, spent = Sampler(target), 0, 0.0
    _run(header)  # the first run fills caches
    while spent < seconds:
        began = process_time()
        with sampler.running():
            steps += _run(header)
        spent += process_time() - began
    total = sampler.counts.total()
    us = {name: sampler.counts[name] / total * spent / steps * 1e6 for name in (ENGINE, MODEL, *PARTS.values(), REST)}
    return StepParts(engine, page_size, steps, steps / spent, us)


def _run(header: Header) -> int:
    """Run the ops once; returns the number of steps."""
    driver = driver_of(header)
    for op in _ops():
        driver.apply(op)
    assert driver.failure is None, f"{header.engine} {header.version} fails: {driver.failure.fingerprint}"
    return driver.counts.engine_steps


def _ops() -> Iterator[Op]:
    """Requests at a constant rate. Prompts share a prefix, branch at a few depths and repeat later."""
    for number in range(REQUESTS):
        path = (0, number % 2, number % 3, number % 5, number % 7)
        yield Submit(
            recipe=Recipe(path=path, stretch=4, cut=number % 3), max_new_tokens=OUTPUT_LENS[number % len(OUTPUT_LENS)]
        )
        for _ in range(STEPS_PER_REQUEST):
            yield Step()
    yield Drain()


def figures(measured: Sequence[StepParts]) -> dict[str, Any]:
    return {
        "step_parts": [
            {
                "engine": one.engine,
                "page_size": one.page_size,
                "steps_per_second": round(one.steps_per_second, 1),
                "us": {name: round(us, 1) for name, us in one.us.items()},
                "added": round(one.added, 3),
            }
            for one in measured
        ]
    }


def text(measured: Sequence[StepParts]) -> str:
    return "\n".join(map(str, measured))
