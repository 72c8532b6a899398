"""An event loop of asyncio whose time passes only when its owner says so, for engines that are coroutines."""

import asyncio
import asyncio.events
import sys
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, cast

MOST_ROUNDS = 100_000  # of one run; a release needs some hundred


class OwnTimeLoop(asyncio.BaseEventLoop):
    """Runs what is ready, in order, without threads, files or sleep.  `now_s` is its time, from 0.

    `run_for` raises the first exception of a callback, or of a task that no other task awaits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._selector = self  # its select() is called for events of files
        self.set_exception_handler(lambda _, context: self._errors.extend(filter(None, [context.get("exception")])))
        self._errors: list[BaseException] = []
        self._started = set[asyncio.Task[Any]]()

    def __del__(self, *_: Any) -> None:
        """Do nothing: the loop holds no resource."""

    def time(self) -> float:
        return self.now_s

    def select(self, timeout: float | None) -> Sequence[Any]:  # the name in asyncio
        return ()

    def _process_events(self, event_list: Sequence[Any]) -> None:
        """Do nothing: the loop waits for no file."""

    def start(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Let a coroutine run from the next run on; what it raises is raised by `run_for`."""
        self.call_soon(lambda: self._started.add(self.create_task(function())))

    def run_for(self, seconds: float) -> None:
        """Run until nothing is ready; timers of the next seconds count as ready, at their times.

        Raises RuntimeError if something is ready after MOST_ROUNDS rounds.
        """
        until, loop = self.now_s + seconds, cast("Any", self)  # parts of the base class that it does not show
        before, hooks = asyncio.events._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio.events._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=lambda _: None)  # a generator of an engine that is dropped is not closed
        try:
            for num_rounds in count():
                if not loop._ready and self._next_timer_s > until:
                    break
                if num_rounds == MOST_ROUNDS:
                    raise RuntimeError(f"the loop is not idle after {MOST_ROUNDS} rounds; want it to await something")
                if not loop._ready:
                    self.now_s = max(self.now_s, self._next_timer_s)
                loop._run_once()
        finally:
            asyncio.events._set_running_loop(before)
            sys.set_asyncgen_hooks(*hooks)
        self.now_s = until
        if self._errors:
            raise self._errors.pop(0)
        for task in [task for task in self._started if task.done()]:
            self._started.remove(task)
            task.result()

    @property
    def _next_timer_s(self) -> float:
        timers = cast("Any", self)._scheduled
        return min([timer.when() for timer in timers if not timer.cancelled()], default=float("inf"))
