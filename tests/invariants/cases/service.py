"""Servers that do not answer, or are not empty at rest."""

from dataclasses import replace

from swarden.invariants.events import Answered, Probed, Rested
from swarden.invariants.laws.lifecycle.service import (
    SERVER,
    ServiceCode,
    capacity_is_whole_at_rest,
    server_is_empty_at_rest,
    valid_requests_are_answered,
)
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import HEALTHY, broken, healthy


def after(*events):
    return replace(HEALTHY, events=events)


CASES = [
    healthy(
        valid_requests_are_answered,
        after(Answered(1, 200, 4, 4), Answered(2, 400, 0, 4), Answered(3, 503, 0, 4), Answered(4, 429, 0, 0, "", True)),
    ),
    broken(
        valid_requests_are_answered,
        "refused-again",
        after(Answered(1, 400, 0, 0, "too long", is_judge=True)),
        found(request_ref(1), ServiceCode.REFUSED_AGAIN, status=400, detail="too long"),
    ),
    broken(
        valid_requests_are_answered,
        "server-error",
        after(Answered(1, 500, 0, 4, "EngineDeadError")),
        found(request_ref(1), ServiceCode.SERVER_ERROR, status=500, detail="EngineDeadError"),
    ),
    broken(
        valid_requests_are_answered,
        "stop-string-ignored",
        after(Answered(1, 200, 4, 4, passed_stop="ab")),
        found(request_ref(1), ServiceCode.GOES_ON, text="ab"),
    ),
    broken(
        valid_requests_are_answered,
        "connection-broke",
        after(Answered(1, 0, 2, 4, "closed")),
        found(request_ref(1), ServiceCode.UNREADABLE, detail="closed"),
    ),
    broken(
        valid_requests_are_answered,
        "more-tokens-than-asked",
        after(Answered(1, 200, 5, 4)),
        found(request_ref(1), ServiceCode.TOO_LONG, num_tokens=5, asked=4),
    ),
    healthy(server_is_empty_at_rest, after(Rested(None, None, None)), "without-metrics"),
    broken(
        server_is_empty_at_rest,
        "not-empty",
        after(Rested(1.0, 2.0, 0.25)),
        found(SERVER, ServiceCode.STILL_RUNNING, running=1.0),
        found(SERVER, ServiceCode.STILL_WAITING, waiting=2.0),
        found(SERVER, ServiceCode.STILL_IN_USE, usage=0.25),
    ),
    healthy(capacity_is_whole_at_rest, after(Probed(1000, 200, 0))),
    broken(
        capacity_is_whole_at_rest,
        "smaller",
        after(Probed(1000, 500, 1)),
        found(SERVER, ServiceCode.NOT_ANSWERED, status=500, length=1000),
        found(SERVER, ServiceCode.PREEMPTED, preemptions=1, length=1000),
    ),
]
