"""The cost of a checked step by its parts, for several engines under the same ops.

The parts come from samples of the stack in equal intervals of CPU time, which need no change of any engine.
"""

import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from types import FrameType
from typing import Any

from swarden.harness.bench.checked_step import apply, submission
from swarden.harness.bench.timing import Measured, timed
from swarden.harness.core import driver as driving
from swarden.harness.core.driver import Driver
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Drain, Step
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
PAGE_SIZES = (1, 4)


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


def measure(engines: Iterable[str]) -> Iterator[Measured]:
    """Measure each engine in turn, with pages of each size."""
    for page_size, engine in product(PAGE_SIZES, engines):
        row = _measured(engine, page_size)
        parts = ", ".join(f"{name} {us:.0f}" for name, us in row["us"].items())
        yield Measured(
            f"{engine}, pages of {page_size}: {row['steps_per_second']:.0f} checked steps a second of CPU; "
            f"us a step: {parts}; the harness adds {row['added']:.2f} of the engine's own step",
            {"step_parts": [row]},
        )


def _measured(engine: str, page_size: int) -> dict[str, Any]:
    """Checked steps per second of CPU, the microseconds of each part of a step, and the share that the harness adds.

    ENGINE is the engine's own code, MODEL the stand-in for its model, PORT its adapter with the reports of events;
    REST has the driver and the digests.
    """
    target = target_of(engine)
    prepare(target)
    shape = Shape(page_size, (Pool("full", 128 // page_size), Pool("swa", 72 // page_size, 9)), 16, 4, 128)
    header = Header(engine=target.name, version=target.version(), configs=[target.encode(target.config_of(shape))])
    sampler, steps, spent = Sampler(target), 0, 0.0
    _apply_ops(header)  # the first run fills caches
    while spent < CPU_SECONDS:
        with sampler.running():
            seconds, driver = timed(lambda: _apply_ops(header))
        spent += seconds
        steps += driver.counts.engine_steps
    step_us = spent / steps * 1e6
    us = {
        part: step_us * sampler.counts[part] / sampler.counts.total() for part in (ENGINE, MODEL, *PARTS.values(), REST)
    }
    own_us = us[ENGINE] + us[MODEL]
    return {
        "engine": engine,
        "page_size": page_size,
        "steps_per_second": round(steps / spent, 1),
        "us": {part: round(part_us, 1) for part, part_us in us.items()},
        "added": round((step_us - own_us) / own_us, 3),
    }


def _apply_ops(header: Header) -> Driver:
    """Submit requests at a constant rate."""
    driver = driver_of(header)
    for number in range(REQUESTS):
        apply(driver, [submission(number), *[Step()] * STEPS_PER_REQUEST])
    apply(driver, [Drain()])
    return driver
