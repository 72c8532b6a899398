"""The recorded traffic against an engine that may be broken, until something speaks or the time is up."""

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.oplog import OpLog
from harness.core.registry import OWN, target_of
from harness.core.replay import run_log
from harness.search.process import prepare_process

REACH: Mapping[str, Sequence[str]] = {  # the machines that reach a part of the engine, the cheapest first
    "pools": ("ledger", "tree", "engine"),
    "cache": ("tree", "engine"),
}
WHOLE = ("engine",)


def attack(part: str, logs: Mapping[str, Sequence[bytes]], *, seconds: float) -> dict[str, object]:
    """Run the logs that reach a part, for at most `seconds` of CPU; the fingerprint of the first failure, or None.

    A run that alone takes as long is stuck, and ends the process, by SIGPROF.
    """
    prepare_process()
    target_of(OWN).prepare_process()
    began = time.process_time()
    told: dict[str, object] = {"found": None}
    steps = runs = 0
    for machine in REACH.get(part, WHOLE):
        for log in logs[machine]:
            if told["found"] is None and time.process_time() - began < seconds:
                signal.setitimer(signal.ITIMER_PROF, seconds)
                driver = run_log(OpLog.parse(log, Path(machine)))
                runs, steps = runs + 1, steps + driver.counts.engine_steps
                if driver.failure is not None:
                    told = {"found": driver.failure.fingerprint, "machine": machine}
    signal.setitimer(signal.ITIMER_PROF, 0)
    return told | {"runs": runs, "engine_steps": steps, "cpu_seconds": round(time.process_time() - began, 2)}
