"""Why a request ends, and why units are freed."""

from enum import StrEnum
from typing import NamedTuple


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"  # it has `max_new_tokens` output tokens
    ABORT = "abort"  # by the client
    TIMEOUT = "timeout"  # `request_timeout_ms` have passed since its arrival
    REJECTED = "rejected"  # at submit: it can never run, or its session accepts no turn
    OUT_OF_MEMORY = "out of memory"  # no other request can free the pages that it lacks
    FORWARD_FAILED = "forward failed"  # more than `max_forward_retries` times
    TRANSFER_FAILED = "transfer failed"  # the sides differ, or the peer closed the transfer
    PEER_TIMEOUT = "peer timeout"  # the peer engine was silent for too long


class Ending(NamedTuple):
    """The reason of a request's end with its detail, which names ids and counts."""

    reason: FinishReason
    detail: str = ""

    def __str__(self) -> str:
        """The text for the client; a failed transfer and a peer timeout show their detail only."""
        if self.reason in (FinishReason.TRANSFER_FAILED, FinishReason.PEER_TIMEOUT):
            return self.detail
        return f"{self.reason}: {self.detail}" if self.detail else str(self.reason)


class FreeCause(StrEnum):
    """Why units were freed.

    The units of a request that ends otherwise than finished have another cause: its FinishReason, or the reason that
    the peer gave in a Close.
    """

    EVICTED = "evicted"  # from the tree, in a shortage or a flush
    DROPPED = "dropped"  # the host dropped its copy of a node
    DUPLICATE = "duplicate"  # the tree already had pages of these tokens
    RECOVERED = "recovered"  # a tombstone became live with the pages of a request, instead of its own
    PEERS_TAKEN_OVER = "peers taken over"  # a locked tombstone kept its pages, and took only the peers that it lacked
    SLID = "slid"  # their tokens left the window
    FINISHED = "finished"  # the request has ended with STOP or LENGTH
    PAUSED = "paused"
    GAVE_WAY = "gave way"  # a loaded request released them for another request that has begun
    RAN_OUT = "ran out"  # the request could not take all pages that were reserved for it
    RETRACTED = "retracted"
    PREEMPTED = "preempted"
    FORWARD_FAILED = "forward failed"  # the request is queued again
    TURN_ENDED = "turn ended"  # the row of the turn; its session keeps the pages
    CUT = "cut"  # pages behind the tokens that a session keeps or its next turn reuses
    CLOSED = "closed"  # with their session
    DIVERGED = "diverged"  # the next turn of the session starts from the tree instead
    PAGES_NEEDED = "pages needed"  # an idle session released them in a shortage, or exceeded the share of idle sessions
    BACKUP_UNUSED = "backup unused"  # the backup succeeded, but the host copy above it was dropped
    BACKUP_FAILED = "backup failed"
    LOAD_UNUSED = "load unused"  # the load succeeded, but its node had become live in the meantime
    LOAD_FAILED = "load failed"
    HANDED_OVER = "handed over"  # the decode side has the whole prompt
