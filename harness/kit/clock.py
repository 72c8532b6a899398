"""The clock that an engine reads in place of the real one, with which runs would differ."""

from collections.abc import Iterable
from types import ModuleType


class EngineClock:
    """Replaces the module `time` in modules of an engine: seconds from 0, which only a target advances.

    With a `tick_s`, each reading is later than the one before by that much, so that no two of them are equal.
    """

    def __init__(self, tick_s: float = 0.0) -> None:
        self.now_s = 0.0
        self._tick_s = tick_s

    def time(self) -> float:
        self.now_s += self._tick_s
        return self.now_s

    monotonic = perf_counter = time

    def serve(self, modules: Iterable[ModuleType]) -> None:
        """Let these modules read this clock from now on."""
        for module in modules:
            vars(module)["time"] = self
