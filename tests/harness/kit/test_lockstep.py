"""The stand-ins for threads and queues of an engine."""

import threading
from queue import Empty
from types import ModuleType

import pytest

from swarden.harness.kit.lockstep import LockstepQueue, LockstepThread, replace_threads


class Worker:
    """A thread as engines write them: it takes numbers until it is stopped, and waits inside the work on a 2."""

    def __init__(self) -> None:
        self.queue, self.stop, self.done = LockstepQueue(), threading.Event(), list[int]()
        self.thread = LockstepThread(target=self.work, daemon=True)
        self.thread.start()

    def work(self) -> None:
        while not self.stop.is_set():
            try:
                number = self.queue.get(block=True, timeout=1)
            except Empty:
                continue
            if number == 2:
                self.thread.wait()
            self.done.append(10 // number)


@pytest.fixture
def worker():
    yield Worker()
    LockstepThread.end_all()


def test_thread_takes_one_item_in_each_step(worker):
    for number in (1, 5):
        worker.queue.put(number)

    worker.thread.step()

    assert (worker.done, worker.queue.items) == ([10], [5])


def test_item_that_a_waiting_thread_works_on_is_among_the_items(worker):
    worker.queue.put(2)

    worker.thread.step()
    waiting = (list(worker.done), worker.queue.items)
    worker.thread.step()

    assert (waiting, worker.done, worker.queue.items) == (([], [2]), [5], [])


def test_exception_of_a_thread_is_raised_by_its_step(worker):
    worker.queue.put(0)

    with pytest.raises(ZeroDivisionError):
        worker.thread.step()
    assert not worker.thread.is_alive()


def test_joined_thread_runs_to_its_end(worker):
    worker.queue.put(2)
    worker.thread.step()
    worker.stop.set()

    worker.thread.join()

    assert (worker.done, worker.thread.is_alive()) == ([5], False)


def test_thread_of_an_earlier_engine_is_ended_and_takes_no_more_steps(worker):
    LockstepThread.end_all()

    assert not worker.thread.is_alive()
    with pytest.raises(AssertionError, match="a later engine of this process"):
        worker.thread.step()


def test_only_threads_and_queues_of_a_module_are_replaced():
    module = ModuleType("some")
    vars(module).update(threading=threading, Queue=None)

    replace_threads([module])

    assert (module.threading.Thread, module.Queue) == (LockstepThread, LockstepQueue)
    assert module.threading.Event is threading.Event
