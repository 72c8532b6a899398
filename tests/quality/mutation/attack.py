"""Runs the recorded traffic on a mutated engine, until a run fails or the CPU time is used up."""

import signal
import time
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

import msgspec

from swarden.harness.core.admission import parse_log
from swarden.harness.core.registry import OWN, target_of
from swarden.harness.core.replay import run_log
from swarden.harness.search.process import prepare_process


class KeptRuns(msgspec.Struct):
    """The kept runs of a kind, as op-logs in file format, in the order in which they are repeated."""

    machine: str
    logs: list[bytes]


def attack(kept: Sequence[KeptRuns], *, seconds: float, running: Path) -> dict[str, object]:
    """Run the logs, for at most `seconds` of CPU. Returns `found`, the first fingerprint or None.

    The current log is in the file `running`, which stays if the process ends during its run.

    The kinds of runs take turns.  The result also has the machine of the failed run and the cost.  A single run that
    takes `seconds` of CPU is stuck: SIGPROF ends the process.
    """
    prepare_process()
    target_of(OWN).prepare_process()
    started = time.process_time()
    result: dict[str, object] = {"found": None}
    steps = runs = 0
    for machine, log in _in_turn(kept):
        if result["found"] is not None or time.process_time() - started >= seconds:
            break
        running.write_bytes(log)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        driver = run_log(parse_log(log, Path(machine)))
        runs, steps = runs + 1, steps + driver.counts.engine_steps
        if driver.failure is not None:
            result = {"found": driver.failure.fingerprint, "machine": machine}
    signal.setitimer(signal.ITIMER_PROF, 0)
    running.unlink(missing_ok=True)
    return result | {"runs": runs, "engine_steps": steps, "cpu_seconds": round(time.process_time() - started, 2)}


def _in_turn(kept: Sequence[KeptRuns]) -> Iterator[tuple[str, bytes]]:
    """The logs of all kinds, each with its machine; after any number of logs, about the same share of each kind."""
    ranked = [(place / len(one.logs), one.machine, log) for one in kept for place, log in enumerate(one.logs)]
    for _, machine, log in sorted(ranked, key=itemgetter(0)):
        yield machine, log
