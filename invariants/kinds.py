"""The places of a request, which adapters and invariants share; a member equals its value as text."""

from enum import StrEnum


class Place(StrEnum):
    """Where a request is between two steps."""

    WAITING = "waiting"  # in the queue, with no KV of its own
    LOADING = "loading"  # waits for the restore of its KV from the host tier
    SWAPPED = "waiting with its KV"  # in the queue; the host has a copy, or its units are kept until others need them
    CHUNKED = "chunked"  # a part of its prompt is computed
    RUNNING = "running"
    LINKED = "linked"  # waits for the other engine of a prefill/decode pair
    LOST = "lost"  # unfinished, but in no queue of the engine: a bug
