"""The places, finish reasons and causes that adapters and invariants share; a member equals its value as text."""

from enum import StrEnum


class Place(StrEnum):
    """Where a request is between two steps."""

    WAITING = "waiting"  # in the queue, with no KV of its own
    LOADING = "loading"  # waits for the restore of its KV from the host tier
    CHUNKED = "chunked"  # a part of its prompt is computed
    RUNNING = "running"
    LINKED = "linked"  # waits for the other engine of a prefill/decode pair
    LOST = "lost"  # unfinished, but in no queue of the engine: a bug


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
    """Why units were freed; only the causes that a law tells apart."""

    SLID = "slid"  # their tokens left the window
    ROLLED_BACK = "rolled back"  # another pool refused a part of the same take
