"""Why a request ends, and why units are freed."""

from enum import StrEnum
from typing import NamedTuple


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    OUT_OF_MEMORY = "out of memory"
    FORWARD_FAILED = "forward failed"
    TRANSFER_FAILED = "transfer failed"
    PEER_TIMEOUT = "peer timeout"


class Ending(NamedTuple):
    """The reason of a request's end with its detail, which names ids and counts."""

    reason: FinishReason
    detail: str = ""

    def __str__(self) -> str:
        """As the client reads it; the detail of a transfer names the other side, and stands alone."""
        if self.reason in (FinishReason.TRANSFER_FAILED, FinishReason.PEER_TIMEOUT):
            return self.detail
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


class FreeCause(StrEnum):
    """Why units were freed, beside the end of a request."""

    EVICTED = "evicted"
    DROPPED = "dropped"
    DUPLICATE = "duplicate"
    RECOVERED = "recovered"
    PEERS_TAKEN_OVER = "peers taken over"
    SLID = "slid"
    ROLLED_BACK = "rolled back"
    FINISHED = "finished"
    PAUSED = "paused"
    GAVE_WAY = "gave way"
    RAN_OUT = "ran out"
    RETRACTED = "retracted"
    PREEMPTED = "preempted"
    FORWARD_FAILED = "forward failed"
    TURN_ENDED = "turn ended"
    CUT = "cut"
    CLOSED = "closed"
    DIVERGED = "diverged"
    PAGES_NEEDED = "pages needed"
    BACKUP_UNUSED = "backup unused"
    BACKUP_FAILED = "backup failed"
    LOAD_UNUSED = "load unused"
    LOAD_FAILED = "load failed"
    HANDED_OVER = "handed over"
