"""Requests in two queues or in none, and records that do not match the places of their requests."""

from swarden.invariants.kinds import Place
from swarden.invariants.laws.lifecycle.places import PlaceCode, records_match_request_places, requests_are_in_one_queue
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import AFTER, after, broken

RUNNING, WAITING = AFTER.requests or ()

CASES = [
    broken(
        requests_are_in_one_queue,
        "two-queues",
        after(requests=(RUNNING, WAITING, RUNNING._replace(place=Place.CHUNKED))),
        found(request_ref(1), PlaceCode.IN_TWO_QUEUES, first=Place.RUNNING, second=Place.CHUNKED),
    ),
    broken(
        requests_are_in_one_queue,
        "in-no-queue",
        after(requests=(RUNNING, WAITING._replace(place=Place.LOST))),
        found(request_ref(2), PlaceCode.LOST),
    ),
    broken(
        requests_are_in_one_queue,
        "unknown-place",
        after(requests=(RUNNING, WAITING._replace(place="asleep"))),
        found(request_ref(2), PlaceCode.UNKNOWN_PLACE, place="asleep"),
    ),
    broken(
        records_match_request_places,
        "runs-without-record",
        after(records=()),
        found(request_ref(1), PlaceCode.WITHOUT_RECORD, place=Place.RUNNING),
    ),
    broken(
        records_match_request_places,
        "waits-with-record",
        after(requests=(RUNNING._replace(place=Place.WAITING), WAITING)),
        found(request_ref(1), PlaceCode.WAITS_WITH_RECORD, row=1),
    ),
    broken(
        records_match_request_places,
        "record-without-request",
        after(requests=(WAITING,)),
        found(request_ref(1), PlaceCode.RECORD_WITHOUT_REQUEST, row=1),
    ),
]
