"""Stand-ins for the threads and queues of an engine: its threads run one at a time, and only when a target says so."""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import Empty, Queue
from types import ModuleType
from typing import Any, ClassVar

from swarden.harness.kit.stand_ins import replace_present

STEPS_TO_END = 1000  # of a thread that is joined


class ThreadEnded(BaseException):
    """Ends a thread whose engine is no longer used."""


class LockstepThread:
    """A stand-in for threading.Thread: `step` runs its function up to where it waits next, and returns then.

    The function waits in `get` of a LockstepQueue, and where its target calls `wait`.  `end_all` ends the threads of an
    engine before the process builds the next one.  `step` raises the exceptions of the function; `unraised` has the
    exceptions of joined threads, because engines catch all that `join` raises.
    """

    running: ClassVar["LockstepThread | None"] = None
    waiting: ClassVar[list["LockstepThread"]] = []
    unraised: ClassVar[list[BaseException]] = []
    let_others_go_on: ClassVar[Callable[[], None]] = staticmethod(lambda: None)  # what a joined thread may wait for

    def __init__(self, target: Callable[..., None], args: Sequence[Any] = (), **_: Any) -> None:
        self._target = partial(target, *args)
        self._error: BaseException | None = None
        self._may_run, self._has_paused = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_abandoned = False
        self.held_by: Callable[[], bool] | None = None

    def start(self) -> None:
        self._thread.start()
        self.waiting.append(self)
        self.step()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def step(self) -> None:
        """Let the function run until it waits again or ends."""
        assert not self._is_abandoned, "a later engine of this process has ended the threads of this one"
        if self not in self.waiting:
            return
        before, LockstepThread.running = LockstepThread.running, self
        self._may_run.release()
        self._has_paused.acquire()
        LockstepThread.running = before
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def join(self, timeout: float | None = None) -> None:
        try:
            for _ in range(STEPS_TO_END):
                if self not in self.waiting:
                    return
                self.step()
                if self.held_by is not None:
                    LockstepThread.let_others_go_on()
            raise AssertionError(f"a thread has not ended after {STEPS_TO_END} steps: {self._target}")
        except BaseException as error:
            self.unraised.append(error)
            raise

    def wait(self) -> None:
        """Return to the caller of `step`; called by the function of this thread."""
        self._has_paused.release()
        self._may_run.acquire()
        if self._is_abandoned:
            raise ThreadEnded

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for what no step of this thread brings about; it is `held_by` that until then."""
        while not is_so():
            self.held_by = is_so
            self.wait()
        self.held_by = None

    @classmethod
    def end_all(cls) -> None:
        cls.unraised.clear()
        while cls.waiting:
            thread = cls.waiting.pop()
            thread._is_abandoned = True
            thread._may_run.release()
            thread._thread.join()

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            if not self._is_abandoned:
                self._target()
        except ThreadEnded:
            return
        except BaseException as error:
            self._error = error
        if not self._is_abandoned:
            self.waiting.remove(self)
        self._has_paused.release()


class LockstepQueue(Queue[Any]):
    """A queue from which a thread in lock-step takes one item in each step; `taken` is the item that it works on."""

    taken: Any = None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        thread = LockstepThread.running
        if thread is None:
            return super().get(block=False)
        self.taken = None
        thread.wait()
        if self.empty():
            raise Empty
        self.taken = super().get(block=False)
        return self.taken

    @property
    def items(self) -> list[Any]:
        """The items in the queue, and that on which a thread works."""
        return [item for item in (self.taken, *self.queue) if item is not None]


def replace_threads(modules: Iterable[ModuleType], **more: Any) -> None:
    """Replace the threads and queues that these modules make, and `more` of threading."""
    lockstep = ModuleType("threading")
    vars(lockstep).update(vars(threading), Thread=LockstepThread, **more)
    replace_present(modules, {"threading": lockstep, "Queue": LockstepQueue})
