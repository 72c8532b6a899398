"""Requests that are not ended at their timeout."""

from swarden.invariants.contracts.overdue_requests import OverdueRequestsCode, old_requests_time_out
from swarden.invariants.kinds import Place
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import broken
from tests.invariants.cases.timeouts import LIMIT_MS, aged

CASES = [
    broken(
        old_requests_time_out,
        "late",
        aged(ages=(100, 99)),
        found(request_ref(1), OverdueRequestsCode.LATE, place=Place.RUNNING, age_ms=LIMIT_MS, timeout_ms=LIMIT_MS),
    )
]
