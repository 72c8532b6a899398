"""A clock that stands still until it is told to go on."""


class FakeClock:
    """Milliseconds since the run began.  It permits no fault but jumps forward, of hours where it is told so."""

    def __init__(self) -> None:
        self._now_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        assert ms >= 0, f"the clock never goes back: {ms} ms"
        self._now_ms += ms
