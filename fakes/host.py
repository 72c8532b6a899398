"""A host store that is not to be relied on."""

from collections.abc import Sequence
from typing import ClassVar

from engine_under_test.ports import Acknowledgement, HostStore, PageCopy
from fakes.faults import Faults


class UnsteadyHostStore:
    """Another host store, which copies only when a transfer ends, as late as may be, and permits these faults:

    Each transfer that is asked for is a crossing; of host.silent each time that there is something to ask for.
    """

    FAULTS: ClassVar = {
        "host.fails": "a transfer ends with nothing copied, and says so",
        "host.torn": "a transfer ends with half of it copied, and says that it failed",
        "host.slow": "a transfer has not ended when it is asked for, and others overtake it; to wait does not help",
        "host.silent": "what has ended is not acknowledged yet",
    }

    def __init__(self, steady: HostStore, plan: Faults) -> None:
        self._steady = steady
        self._plan = plan
        self._waiting: dict[int, Sequence[PageCopy]] = {}

    def begin(self, transfer: int, copies: Sequence[PageCopy]) -> None:
        self._waiting[transfer] = copies

    def acknowledged(self) -> list[Acknowledgement]:
        if not self._waiting or self._plan.fires("host.silent"):
            return []
        ended = [transfer for transfer in self._waiting if not self._plan.fires("host.slow")]
        return [self._end(transfer, self._waiting.pop(transfer)) for transfer in ended]

    def wait(self) -> None:
        """All are copied when they are asked for, and not before."""

    def _end(self, transfer: int, copies: Sequence[PageCopy]) -> Acknowledgement:
        if self._plan.fires("host.fails"):
            return Acknowledgement(transfer, "the copy failed")
        if self._plan.fires("host.torn"):
            copies = [_first_half(one) for one in copies]
            self._run(transfer, copies)
            return Acknowledgement(transfer, "the copy broke off half-way")
        self._run(transfer, copies)
        return Acknowledgement(transfer)

    def _run(self, transfer: int, copies: Sequence[PageCopy]) -> None:
        self._steady.begin(transfer, copies)
        self._steady.wait()
        [acknowledgement] = self._steady.acknowledged()
        assert acknowledgement == Acknowledgement(transfer), f"{acknowledgement} for transfer {transfer}"


def _first_half(copy: PageCopy) -> PageCopy:
    half = len(copy.source_pages) // 2
    return copy._replace(source_pages=copy.source_pages[:half], target_pages=copy.target_pages[:half])
