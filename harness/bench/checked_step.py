"""The cost of a checked engine step by its parts.

They come from samples of the stack in equal intervals of CPU time, which need no change of any engine.  ENGINE is
the engine's own code, MODEL the stand-in for its model, PORT its adapter with the reports of events; REST has the
driver and the digests.
"""

import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from types import FrameType

from swarden.harness.bench.timing import Case, timed
from swarden.harness.core import driver as driving
from swarden.harness.core.changes import Changes, fitting_fixes
from swarden.harness.core.driver import Driver
from swarden.harness.core.oplog import Header
from swarden.harness.core.ops import Drain, Op, Recipe, Step, Submit
from swarden.harness.core.origins import EngineCode, is_within, module_of
from swarden.harness.core.registry import target_of
from swarden.harness.core.replay import driver_of
from swarden.harness.core.target import Pool, Shape, Target, prepare
from swarden.invariants import reference

ENGINE, MODEL, PORT, CAPTURE, EVENTS, LAWS, REST = "engine", "model", "port", "capture", "events", "laws", "rest"
PARTS = {"do": PORT, "capture": CAPTURE, "take_events": EVENTS, "check": LAWS}  # by the method that the driver calls
SAMPLE_S = 0.001
CPU_SECONDS = 20.0  # under the samples
PAGE_SIZES = (1, 4)
REQUESTS = 150
STEPS_PER_REQUEST = 5
OUTPUT_LENS = (26, 22, 30)


def traffic() -> Iterator[Op]:
    """Submissions at a constant rate; prompts share a prefix, branch at a few depths and repeat later."""
    for number in range(REQUESTS):
        path = (0, number % 2, number % 3, number % 5, number % 7)
        output_len = OUTPUT_LENS[number % len(OUTPUT_LENS)]
        yield Submit(recipe=Recipe(path=path, stretch=4, cut=number % 3), max_new_tokens=output_len)
        yield from [Step()] * STEPS_PER_REQUEST
    yield Drain()


def header_of(target: Target, page_size: int) -> Header:
    """Pools of two kinds that the traffic nearly fills."""
    pools = Pool("full", 256 // page_size), Pool("swa", 96 // page_size, 5)
    config = target.config_of(Shape(page_size, pools, chunk_len=40, max_running_requests=6, max_context_len=256))
    return Header(engine=target.name, version=target.version(), configs=[target.encode(config)])


def measure(engines: Iterable[str]) -> Iterator[Case]:
    """Measure each engine in turn, with pages of each size: its steps per second, and the microseconds of each part."""
    for page_size, engine in product(PAGE_SIZES, engines):
        target = target_of(engine)
        prepare(target)
        served = partial(_served, header_of(target, page_size))
        steps, spent, behind = 0, 0.0, Changes(None, tuple(patch.name for patch in fitting_fixes(target)))
        with behind.planted(target), sampled(target.code) as counts:
            served()  # the first run fills caches
            counts.clear()
            while spent < CPU_SECONDS:
                seconds, driver = timed(served)
                spent += seconds
                steps += driver.counts.engine_steps
        shares = {part: counts[part] / counts.total() for part in (ENGINE, MODEL, *PARTS.values(), REST)}
        yield Case(
            f"us of a checked step of {engine}, pages of {page_size}",
            {part: round(share * spent / steps * 1e6, 1) for part, share in shares.items()}
            | {
                "steps a second of CPU": round(steps / spent, 1),
                "added to the engine's own step": round(1 / (shares[ENGINE] + shares[MODEL]) - 1, 3),
            },
        )


@contextmanager
def sampled(code: EngineCode) -> Iterator[Counter[str]]:
    """Count samples of the running code by part, in equal intervals of CPU time."""
    counts = Counter[str]()
    before = signal.signal(signal.SIGPROF, lambda _, frame: counts.update([part_of(frame, code)]))
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
    try:
        yield counts
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def part_of(frame: FrameType | None, code: EngineCode) -> str:
    """The part of a sample, by the driver's call that runs; within a call of the engine, by the innermost code.

    Modules of others, such as torch, and the functions of tags, which stand-ins and ports call, count for their
    callers.
    """
    inner, called = "", ""
    while frame is not None and frame.f_globals is not vars(driving):
        module = module_of(frame)
        if not inner and code.has(frame):
            inner = ENGINE
        elif not inner and module in code.stand_ins:
            inner = MODEL
        elif not inner and is_within(module, "swarden") and module != reference.__name__:
            inner = PORT
        called, frame = frame.f_code.co_name, frame.f_back
    part = PARTS.get(called, REST)
    return inner if part == PORT and inner else part


def _served(header: Header) -> Driver:
    """The driver after all ops, which must not fail."""
    driver = driver_of(header)
    for op in traffic():
        driver.apply(op)
    assert driver.failure is None, f"the workload fails: {driver.failure.fingerprint}"
    return driver
