"""A job that hangs or crashes loses only its own result, and all processes end with the iterator."""

import os
import signal
from itertools import count
from multiprocessing import active_children

import pytest

from swarden.harness.core.errors import UsageError
from swarden.harness.nightly.shards import close_lanes
from swarden.harness.search.jobs import run_jobs

HANG_SECONDS = 0.1
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def work(job):
    match job:
        case "hang":
            signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
            for _ in count():
                pass
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "misuse":
            raise UsageError("no room")
    return job.upper()


@pytest.fixture(autouse=True)
def _without_other_children():
    """Other tests of this process leave a worker open."""
    close_lanes()


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_each_job_yields_its_result_or_the_death_of_its_process(workers):
    jobs = ["one", "hang", "two", "crash", "three"]

    ended = {}
    for job, result in run_jobs(jobs, work, workers=workers):
        ended[job] = result

    hung, crashed = ended.pop("hang"), ended.pop("crash")
    assert ended == {"one": "ONE", "two": "TWO", "three": "THREE"}
    assert [str(hung), str(crashed)] == ["worker stopped answering", "worker died: SIGKILL"]
    assert hung.seconds > HANG_SECONDS / 2  # the kernel counts in ticks


def test_usage_error_of_a_job_is_raised_in_the_parent():
    with pytest.raises(UsageError, match="no room"):
        list(run_jobs(["misuse"], work, workers=1))


def test_processes_end_with_the_iterator():
    running = run_jobs(["one", "hang", "hang"], work, workers=3)
    next(running)

    running.close()

    assert active_children() == []


def test_interrupt_during_a_fork_is_not_lost():
    """Python drops exceptions that are raised in the hooks around a fork."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits SIG_IGN
    due = [signal.SIGINT]

    def interrupt_once():
        while due:
            os.kill(os.getpid(), due.pop())

    os.register_at_fork(after_in_parent=interrupt_once)

    with pytest.raises(KeyboardInterrupt):
        list(run_jobs(["one"], work, workers=1))

    assert active_children() == []
