"""The unsteady host store: a wrapper with faults."""

from collections.abc import Sequence
from typing import ClassVar

from swarden.engine_under_test.ports import Acknowledgement, HostStore, PageCopy
from swarden.fakes.faults import Faults


class UnsteadyHostStore:
    """Wraps a host store.  It copies as late as possible: when a copy is acknowledged.

    Each copy is one crossing at each call of `acknowledged`; for host.silent each call with copies in flight is one.
    """

    FAULTS: ClassVar = {
        "host.fails": "a copy fails without copying anything, and is acknowledged as failed",
        "host.torn": "a copy fails half-way, and is acknowledged as failed",
        "host.slow": "a copy stays in flight, even after a wait, while later ones are acknowledged",
        "host.silent": "no copy is acknowledged",
    }

    def __init__(self, steady: HostStore, plan: Faults) -> None:
        self._steady = steady
        self._plan = plan
        self._waiting: dict[int, Sequence[PageCopy]] = {}

    def begin(self, job: int, copies: Sequence[PageCopy]) -> None:
        self._waiting[job] = copies

    def acknowledged(self) -> list[Acknowledgement]:
        if not self._waiting or self._plan.fires("host.silent"):
            return []
        ended = [job for job in self._waiting if not self._plan.fires("host.slow")]
        return [self._end(job, self._waiting.pop(job)) for job in ended]

    def wait(self) -> None:
        """Does nothing: copies are made by `acknowledged`."""

    def _end(self, job: int, copies: Sequence[PageCopy]) -> Acknowledgement:
        if self._plan.fires("host.fails"):
            return Acknowledgement(job, "the copy failed")
        if self._plan.fires("host.torn"):
            copies = [_first_half(copy) for copy in copies]
            self._run(job, copies)
            return Acknowledgement(job, "the copy failed half-way")
        self._run(job, copies)
        return Acknowledgement(job)

    def _run(self, job: int, copies: Sequence[PageCopy]) -> None:
        self._steady.begin(job, copies)
        self._steady.wait()
        [acknowledgement] = self._steady.acknowledged()
        assert acknowledgement == Acknowledgement(job), f"{acknowledgement} for job {job}"


def _first_half(copy: PageCopy) -> PageCopy:
    half = len(copy.source_pages) // 2
    return copy._replace(source_pages=copy.source_pages[:half], target_pages=copy.target_pages[:half])
