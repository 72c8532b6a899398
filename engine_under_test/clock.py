"""The clock of the machine."""

from time import monotonic_ns

NS_PER_MS = 1_000_000


class MonotonicClock:
    """The clock of the machine, in milliseconds since some fixed point; the time never decreases."""

    def now_ms(self) -> int:
        return monotonic_ns() // NS_PER_MS
