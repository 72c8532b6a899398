"""The bounds of one hostile case: memory and CPU time; and the number of cases."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time

from hypothesis import HealthCheck, settings

MAX_BYTES = 256 << 20  # more than before the case
MAX_CPU_SECONDS = 5.0
SPARE_BYTES = 2 << 30  # of address space, so that a case without bound raises MemoryError
SHARE = float(os.environ.get("SWARDEN_HOSTILE_SHARE", "1"))  # 10 makes ten times as many cases of each kind


def cases(count: int) -> settings:
    return settings(
        max_examples=max(1, round(count * SHARE)),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def bounded(*refusals: type[Exception]) -> Iterator[None]:
    """Fails if the body takes more memory or time than a case may; it may raise one line of a refusal."""
    before, began, refused = _peak_bytes(), process_time(), ""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + SPARE_BYTES, limits[1]))
    try:
        yield
    except refusals as error:
        refused = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    used, seconds = _peak_bytes() - before, process_time() - began
    assert len(refused.splitlines()) <= 1, refused
    assert used <= MAX_BYTES, f"{used >> 20} MB"
    assert seconds <= MAX_CPU_SECONDS, f"{seconds:.1f} s"


def _peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
