"""Records that hold more pages than they need."""

from dataclasses import replace

from swarden.invariants.contracts.footprint import (
    FootprintCode,
    allocation_is_within_lookahead,
    private_windows_are_bounded,
)
from swarden.invariants.violation import found, owner_ref, request_ref
from tests.invariants.builders import (
    AFTER,
    BEFORE,
    HEALTHY,
    R1,
    after,
    broken,
    healthy,
    in_flight,
    in_flight_record,
    records,
)


def unshared(frontier):
    """The healthy step with an r1 that shares nothing."""
    return replace(
        HEALTHY,
        before=replace(BEFORE, records=records(protected_len=0, committed_len=20)),
        after=replace(AFTER, records=records(protected_len=0, frontiers=(0, frontier))),
    )


def too_far_ahead(allocated, launched, most):
    return found(owner_ref(R1), FootprintCode.TOO_FAR_AHEAD, allocated_len=allocated, launched_len=launched, most=most)


CASES = [
    healthy(allocation_is_within_lookahead, after(records=records(allocated_len=24)), "up-to-a-page-boundary"),
    broken(
        allocation_is_within_lookahead,
        "one-page-too-many",
        in_flight(records=in_flight_record(allocated_len=25)),
        too_far_ahead(25, 22, 24),
    ),
    healthy(private_windows_are_bounded, unshared(frontier=8), "at-the-limit"),
    broken(
        private_windows_are_bounded,
        "window-never-slid",
        unshared(frontier=0),
        found(
            request_ref(1),
            FootprintCode.TOO_FAR_BEHIND,
            component="swa",
            kept_len=20,
            most=12,
            committed_len=20,
            frontier=0,
        ),
    ),
]
