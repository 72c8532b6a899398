"""The fake clock, which only tests and ops advance."""


class FakeClock:
    """Milliseconds since the start of the run.  It has no faults; `advance` may jump by hours."""

    def __init__(self) -> None:
        self._now_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        assert ms >= 0, f"the clock cannot go back: {ms} ms"
        self._now_ms += ms
