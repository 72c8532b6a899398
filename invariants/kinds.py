"""The words that adapters and invariants share for places, endings and causes; a member equals its value as text."""

from enum import StrEnum


class Place(StrEnum):
    """Where a request is between two steps."""

    WAITING = "waiting"  # in the queue, with no KV of its own
    LOADING = "loading"  # until its KV has come back from the host tier
    CHUNKED = "chunked"  # its prompt is computed in part
    RUNNING = "running"
    LINKED = "linked"  # the other engine of a prefill/decode pair has the work
    LOST = "lost"  # unfinished, and in no queue of the engine: a bug


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


class FreeCause(StrEnum):
    """Why units were freed, as far as a law asks."""

    SLID = "slid"  # out of the window
    ROLLED_BACK = "rolled back"  # of a take that another pool refused
