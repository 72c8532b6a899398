"""The time of day, as far as an engine needs it."""

from time import monotonic_ns

NS_PER_MS = 1_000_000


class MonotonicClock:
    """The clock of the machine, in milliseconds since some fixed point; it never goes back."""

    def now_ms(self) -> int:
        return monotonic_ns() // NS_PER_MS
