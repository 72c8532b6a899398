"""Reservations that are exceeded, that fail, or whose range is not the computed one."""

from swarden.invariants.contracts.reservation import (
    ReservationCode,
    launches_match_reservations,
    reservations_cover_taken_units,
    reserved_units_never_run_out,
)
from swarden.invariants.events import Admitted, CopyEnded, Freed, Launched, RanOut, Refused, Taken
from swarden.invariants.violation import Found, Ref, found
from tests.invariants.builders import R1, R2, broken, during, healthy
from tests.invariants.host_builders import BACKUP_BEGAN, LOAD, PLANNED, while_copying

ADMITTED = Admitted(2, 0, 5, (("full", 2), ("swa", 2)), (("full", 3), ("swa", 3)))


def ran_out(subject: Ref) -> Found:
    return found(subject, ReservationCode.RAN_OUT, pool="swa", want=2, free=1)


CASES = [
    healthy(
        reservations_cover_taken_units,
        during(
            Taken("rows", (2,), R2),
            ADMITTED,
            Taken("full", (9, 10), R2),
            Freed("full", (10, 9), R2, "rolled back", 0),
            Taken("full", (9, 10), R2),
            Taken("swa", (7, 8), R2),
            Taken("full", (11, 12), R1),
        ),
    ),
    broken(
        reservations_cover_taken_units,
        "takes-more-than-reserved",
        during(ADMITTED, Taken("full", (9, 10), R2), Taken("swa", (6, 7, 8), R2)),
        found(Ref("request", 2), ReservationCode.EXCEEDED, pool="swa", excess=1),
    ),
    healthy(reserved_units_never_run_out, during(RanOut(1, "swa", 2, 2)), "refused-by-a-fault"),
    broken(
        reserved_units_never_run_out, "ran-out", during(ADMITTED, RanOut(2, "swa", 2, 1)), ran_out(Ref("request", 2))
    ),
    broken(
        reserved_units_never_run_out,
        "load-refused",
        while_copying(PLANNED, Refused("swa", LOAD, 2, 1), Refused("full", R1, 1, 0)),
        ran_out(Ref("load", 2)),
    ),
    broken(
        reserved_units_never_run_out,
        "backup-acknowledged-before",
        while_copying(PLANNED, BACKUP_BEGAN, CopyEnded(1, None), RanOut(1, "swa", 2, 1)),
        ran_out(Ref("request", 1)),
    ),
    broken(
        launches_match_reservations,
        "range-cut",
        during(ADMITTED, Launched(7, ((2, 0, 4),))),
        found(
            Ref("request", 2), ReservationCode.OTHER_RANGE_LAUNCHED, launch=7, start=0, end=4, want_start=0, want_end=5
        ),
    ),
]
