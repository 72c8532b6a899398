"""Runs the recorded traffic on a mutated engine, until a run fails or the CPU time is used up."""

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.core.oplog import OpLog
from harness.core.registry import OWN, target_of
from harness.core.replay import run_log
from harness.search.process import prepare_process

MACHINES_BY_PART: Mapping[str, Sequence[str]] = {  # the machines that drive a part of the engine, the cheapest first
    "pools": ("ledger", "tree", "engine"),
    "cache": ("tree", "engine"),
}
WHOLE_ENGINE = ("engine",)


def attack(part: str, logs: Mapping[str, Sequence[bytes]], *, seconds: float) -> dict[str, object]:
    """Run the logs that drive a part, for at most `seconds` of CPU. Returns `found`, the first fingerprint or None.

    The result also has the machine of the failed run and the cost.  A single run that takes `seconds` of CPU is stuck:
    SIGPROF ends the process.
    """
    prepare_process()
    target_of(OWN).prepare_process()
    started = time.process_time()
    result: dict[str, object] = {"found": None}
    steps = runs = 0
    for machine in MACHINES_BY_PART.get(part, WHOLE_ENGINE):
        for log in logs[machine]:
            if result["found"] is None and time.process_time() - started < seconds:
                signal.setitimer(signal.ITIMER_PROF, seconds)
                driver = run_log(OpLog.parse(log, Path(machine)))
                runs, steps = runs + 1, steps + driver.counts.engine_steps
                if driver.failure is not None:
                    result = {"found": driver.failure.fingerprint, "machine": machine}
    signal.setitimer(signal.ITIMER_PROF, 0)
    return result | {"runs": runs, "engine_steps": steps, "cpu_seconds": round(time.process_time() - started, 2)}
