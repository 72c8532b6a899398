"""The guarantees of a server to its clients.

On a server: Clients get errors or no answer, or the server has lost memory that only a restart brings back.
"""

from swarden.invariants.events import Answered, Probed, Rested
from swarden.invariants.invariant import invariant
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Code, Evidence, Ref, found, request_ref

SERVER = Ref("server")
ANSWERED, CLIENT_ERRORS, SERVER_ERRORS = 200, 400, 500
OVERLOADED = (429, 503)


class ServiceCode(Code):
    SERVER_ERROR = "status {status}: {detail}"
    REFUSED_AGAIN = "status {status} for the same tokens without the cache, although they were answered: {detail}"
    UNREADABLE = "the connection broke, or the answer is unreadable: {detail}"
    TOO_LONG = "{num_tokens} tokens, {asked} were requested"
    GOES_ON = "the answer goes on behind the stop string {text}"
    STILL_RUNNING = "{running} requests run, but all are answered"
    STILL_WAITING = "{waiting} requests wait, but all are answered"
    STILL_IN_USE = "a share of {usage} of the KV memory is in use, but all requests are answered"
    NOT_ANSWERED = "status {status} for a prompt of {length} tokens, which was answered when the server was new"
    PREEMPTED = "{preemptions} preemptions for a prompt of {length} tokens, none when the server was new"


@invariant(When.STEP, on=(Answered,))
def valid_requests_are_answered(change: Transition) -> Evidence:
    """A valid request is answered up to its length or a stop string; it may be refused with a status below 500.

    It is not refused if the same tokens were answered before.  A server may also say that it is overloaded (429, 503).
    """
    for event in change.events_of(Answered):
        subject = request_ref(event.request_id) if event.request_id else SERVER
        if not event.status:
            yield found(subject, ServiceCode.UNREADABLE, detail=event.detail)
        elif event.status in OVERLOADED:
            continue
        elif event.status >= SERVER_ERRORS:
            yield found(subject, ServiceCode.SERVER_ERROR, status=event.status, detail=event.detail)
        elif event.status >= CLIENT_ERRORS and event.is_judge:
            yield found(subject, ServiceCode.REFUSED_AGAIN, status=event.status, detail=event.detail)
        elif event.num_tokens > event.max_new_tokens:
            values = {"num_tokens": event.num_tokens, "asked": event.max_new_tokens}
            yield found(subject, ServiceCode.TOO_LONG, **values)
        elif event.passed_stop:
            yield found(subject, ServiceCode.GOES_ON, text=event.passed_stop)


@invariant(When.STEP, on=(Rested,))
def server_is_empty_at_rest(change: Transition) -> Evidence:
    """When all requests are answered, the metrics of the server show no request and no KV in use."""
    for running, waiting, usage in change.events_of(Rested):
        if running:
            yield found(SERVER, ServiceCode.STILL_RUNNING, running=running)
        if waiting:
            yield found(SERVER, ServiceCode.STILL_WAITING, waiting=waiting)
        if usage:
            yield found(SERVER, ServiceCode.STILL_IN_USE, usage=usage)


@invariant(When.OP, on=(Probed,))
def capacity_is_whole_at_rest(change: Transition) -> Evidence:
    """A server at rest can hold a prompt as long as when it was new; nothing else runs, so it is not overloaded."""
    for length, status, preemptions in change.events_of(Probed):
        if status != ANSWERED:
            yield found(SERVER, ServiceCode.NOT_ANSWERED, status=status, length=length)
        if preemptions:
            yield found(SERVER, ServiceCode.PREEMPTED, preemptions=preemptions, length=length)
