"""How long a peer has been silent."""

from dataclasses import dataclass


def heartbeat_ms(timeout_ms: int) -> int:
    """The interval of heartbeats to a peer that waits at most `timeout_ms` for one."""
    return max(1, timeout_ms // 4)


@dataclass(slots=True)
class Silence:
    """The time since the last message of a peer, as far as this process observed it.

    The time between two looks counts as at most `max_step_ms`, because this process itself may have been stopped.
    """

    max_step_ms: int
    looked_ms: int
    ms: int = 0

    def heard(self) -> None:
        self.ms = 0

    def look(self, now_ms: int) -> int:
        """The milliseconds of silence up to now."""
        self.ms += min(now_ms - self.looked_ms, self.max_step_ms)
        self.looked_ms = now_ms
        return self.ms
