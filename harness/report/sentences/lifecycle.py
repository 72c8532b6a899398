"""The sentences of the laws of lifecycle."""

from collections.abc import Mapping

from invariants.laws.lifecycle.batches import BatchCode
from invariants.laws.lifecycle.clients import ClientCode
from invariants.laws.lifecycle.flights import FlightCode
from invariants.laws.lifecycle.handover import HandoverCode
from invariants.laws.lifecycle.pauses import PauseCode
from invariants.laws.lifecycle.places import PlaceCode
from invariants.laws.lifecycle.priorities import PriorityCode
from invariants.laws.lifecycle.progress import ProgressCode
from invariants.laws.lifecycle.releases import ReleaseCode
from invariants.laws.lifecycle.sessions import SessionCode
from invariants.laws.lifecycle.timeouts import TimeoutCode
from invariants.violation import Code

_PASS = "{launch} reads or writes it for {request}"

SENTENCES: Mapping[Code, str] = {
    ClientCode.DECODED_AFTER_ABORT: "{decoded} tokens decoded after its abort, at most {most} are allowed",
    ClientCode.DECODED_AFTER_STOP: "not ended at its stop token {token} at position {position}",
    ClientCode.STOPPED_WITHOUT_STOP_TOKEN: "ended by a stop token, but has none in its output",
    ClientCode.ENDED_SHORT: "ended by length after {num_outputs} tokens, but {asked} were requested",
    FlightCode.LAUNCHED_OUT_OF_ORDER: "launched after {last}, but launch ids must increase",
    FlightCode.TOO_MANY_IN_FLIGHT: "launched while {in_flight} are in flight, at most {most} may be",
    FlightCode.NOT_IN_FLIGHT: "named by {event}, but not in flight",
    FlightCode.NOT_THE_OLDEST: "named by {event}, but {oldest} is older and still in flight",
    FlightCode.FAILED_NOT_COMPLETED: "failed, but has not completed in that step",
    FlightCode.IN_FLIGHT_DIFFERS: "the launches in flight are {found}, but by the events they are {wanted}",
    FlightCode.DISCARDED_NOT_COMPLETED: "its result of {launch} discarded, but no such result came in this step",
    FlightCode.VALID_RESULT_DISCARDED: "[{start}, {end}) of {launch} discarded, but the result is valid",
    FlightCode.LEFT_FENCE_EARLY: "left its fence before {launch} completed",
    FlightCode.UNLOCKED_EARLY: "unlocked before {launch} completed",
    FlightCode.USED_WHILE_UNOWNED: f"{_PASS}, but it has no owner",
    FlightCode.USED_AFTER_FREE: f"{_PASS}, but it is free",
    FlightCode.USED_AFTER_CHANGE_OF_OWNER: f"{_PASS}, but it is owned by {{owner}}",
    FlightCode.USED_IN_ANOTHER_RECORD: f"{_PASS}, but {{owner}} has it in another record",
    FlightCode.USED_WITHOUT_LOCK: f"{_PASS}, but it is owned by {{owner}} without a lock for the pass",
    FlightCode.FENCED_FOR_EARLIER_LAUNCH: f"{_PASS}, but its fence waits for {{waits_for}} only",
    HandoverCode.RESERVED_TOO_FEW: "{taken} units of {pool} taken for {length} tokens, but {missing} are needed",
    HandoverCode.RESERVATION_MISCOUNTED: "{taken} units of {pool} taken, but the event reports {reported}",
    HandoverCode.SENT_FOREIGN_PAGES: "{pages} sent from page index {first} on, but it has other pages there",
    HandoverCode.FILLED_WITHOUT_RESERVATION: "{pages} filled, but nothing is reserved",
    HandoverCode.FILLED_OTHER_PLACES: "{pages} filled, but not reserved for these page indices",
    HandoverCode.ENDED_UNREPORTED: "ended, but neither taken over nor released",
    HandoverCode.BEGAN_UNREPORTED: "began without an event",
    HandoverCode.PAGES_CHANGED: "{pool} pages changed from {was} to {now}",
    HandoverCode.UNITS_LEFT: "ended, but still owns {units}",
    HandoverCode.TAKEN_OVER_AT_WRONG_LEN: "taken over with the KV of {length} tokens, but {computed} are computed",
    HandoverCode.KNOWN_OUTPUT_RESENT: "taken over with {num_tokens} output tokens, but {num_outputs} were known before",
    HandoverCode.WAITS_FOR_PREFILL: "its KV was set aside, but it is {place}",
    HandoverCode.LOST: "its KV was set aside, but it is in no queue and not finished",
    PauseCode.LAUNCHED: "launched in a pause",
    PauseCode.BEGAN_UNREPORTED: "a pause began, but no event reports it",
    PauseCode.ENDED_UNREPORTED: "a pause ended, but no event reports it",
    PlaceCode.IN_TWO_QUEUES: "in two queues: {first} and {second}",
    PlaceCode.LOST: "unfinished, in no queue",
    PlaceCode.UNKNOWN_PLACE: "unfinished, at the unknown place '{place}'",
    PlaceCode.WITHOUT_RECORD: "{place}, but has no record",
    PlaceCode.WAITS_WITH_RECORD: "waiting, but has a record in row {row}",
    PlaceCode.RECORD_WITHOUT_REQUEST: "has a record in row {row}, but is in no queue",
    ProgressCode.STUCK: "{steps} steps without a pass, with work: {requests}",
    ProgressCode.UNITS_LEFT: "{free} of {capacity} units are free, the rest is owned by {owners}",
    ProgressCode.UNITS_LOST: "{free} of {capacity} units are free, the rest has no owner",
    ProgressCode.REQUEST_LEFT: "still {place} after a drain",
    ProgressCode.RECORD_LEFT: "still has row {row} after a drain",
    ProgressCode.RECEIPT_LEFT: "still held by {holder} after a drain",
    ProgressCode.NODE_LEFT: "still in the tree after a drain, with locks {locks}",
    ProgressCode.LAUNCH_LEFT: "still in flight after a drain",
    ProgressCode.SESSION_LEFT: "still open after a drain",
    ProgressCode.COPY_JOB_LEFT: "still under way after a drain",
    SessionCode.TURN_OF_CLOSED_SESSION: "turn of {session}, which is closed",
    SessionCode.TURN_OF_IDLE_SESSION: "turn of {session}, but the session has no turn",
    SessionCode.SECOND_TURN: "a turn of {session} beside {turn}",
    SessionCode.OTHER_NAMESPACE: "in namespace {namespace}, its {session} is in {session_namespace}",
    SessionCode.TURN_LOST: "its turn is {turn}, which is in no queue",
    SessionCode.RECORD_OF_CLOSED_SESSION: "keeps {kept_len} tokens, but is closed",
    SessionCode.RECORD_BESIDE_TURN: "keeps a record beside that of its turn {turn}",
    SessionCode.KEPT_LEN_DIFFERS: "has kept_len {noted_len}, but keeps {kept_len} tokens",
    SessionCode.CONTINUED_TOO_FAR: "continues {session} at {length}, but the session kept {kept_len} tokens",
    SessionCode.CONTINUED_ON_OTHER_PAGES: "continues {session} on pages {pages}, but the session kept {kept}",
    SessionCode.KEPT_TOO_MUCH: "keeps {kept_len} tokens, but {delivered} were delivered",
    SessionCode.CLOSED_DURING_TURN: "closed while its turn {turn} goes on",
    SessionCode.REFUSED_WHILE_IDLE: "refused, but {session} is open and has no turn",
    SessionCode.CHANGED_UNREPORTED: "kept {was_len} tokens and keeps {kept_len}, without an event",
    TimeoutCode.EARLY: "timed out after {age_ms} ms, the timeout is {timeout_ms} ms",
    BatchCode.REQUEST_TWICE: "computes {requests} twice",
    BatchCode.TOO_MANY_REQUESTS: "computes {count} requests, at most {most} may run",
    BatchCode.NO_TOKENS: "launch {launch} computes no token for it: [{start}, {end})",
    BatchCode.RESUMED_ELSEWHERE: "launch {launch} computes [{start}, {end}), but launched_len was {launched_len}",
    BatchCode.STARTED_ELSEWHERE: "launch {launch} computes [{start}, {end}), but it was admitted at {admitted_at}",
    BatchCode.NOT_ADMITTED: "launch {launch} computes [{start}, {end}), but it has no record and was not admitted",
    BatchCode.COMMITTED_OTHER_LEN: "committed_len is {committed_len}, but its last valid result ends at {want}",
    PriorityCode.PREEMPTION_IS_OFF: "preempted for {by}, but preemption is off",
    PriorityCode.VICTIM_NOT_RUNNING: "preempted for {by}, but it did not run",
    PriorityCode.PRIORITY_TOO_LOW: (
        "has priority {priority}, but is preempted for {by} of priority {by_priority}, threshold {threshold}"
    ),
    ReleaseCode.KEEPS_RECORD: "still has a record in row {row} after {after}",
    ReleaseCode.KEEPS_UNITS: "still owns {pool} {units} after {after}",
    ReleaseCode.STILL_QUEUED: "finished ({reason}), but it is {place}",
    ReleaseCode.VANISHED: "was in launch {launch}, which failed; now it is in no queue and not finished",
}
