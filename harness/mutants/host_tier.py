"""Bugs of the host tier, which is to come."""

from functools import partial

from harness.mutants.unplanted import Waiting

in_the_host_tier = partial(Waiting, capability="host tier")

LOADED_PAGES_ARE_NOT_PAID_FOR = in_the_host_tier(
    "B37", "sglang pull 27391: pages that a load brings back were not in the budget, so a prefill ran out of memory"
)
PAGES_TO_LOAD_ARE_NOT_PINNED = in_the_host_tier(
    "B51", "sglang pulls 26728, 26881 and 27424: host pages chosen for a load were evicted before it began"
)
FAILED_LOAD_KEEPS_ITS_LOCKS = in_the_host_tier(
    "B53", "sglang pull 27108: a load that returned early kept its locks on the device and had none on the host"
)
COPIES_UNDER_WAY_ARE_NOT_PINNED = in_the_host_tier(
    "B54", "sglang pull 28468: pages that were being written back were not pinned on the host until acknowledged"
)
WINDOW_DROPPED_WITHOUT_BACKUP = in_the_host_tier(
    "B55", "sglang pulls 29204, 37496 and 40712: the window of an inner node was dropped without a copy, for good"
)
LONG_HOST_SEGMENT_LOADED_WHOLE = in_the_host_tier(
    "B57", "sglang pull 31771: a host segment far longer than the window was charged and loaded whole"
)
HOST_COPY_OUTLIVES_ITS_USE = in_the_host_tier(
    "B58", "sglang pull 34046: host copies of what had come back to the device stayed, until the host pool was full"
)
