"""Clients who are not listened to."""

from dataclasses import replace

from invariants.clients import outputs_end_where_they_were_asked_to, who_hangs_up_is_let_go
from invariants.events import Finished
from tests.invariants.builders import AFTER, HEALTHY, broken, healthy, reference


def asking(*events, stop=(), is_gone=False, after=AFTER):
    """r1 has said three tokens before and one more now; `stop` picks tokens of its output that should end it."""
    known = reference(22)
    expected = known.expectations[1]
    expected.stop = frozenset(expected.tokens[expected.prompt_len + index] for index in stop)
    expected.is_gone = is_gone
    return replace(HEALTHY, reference=known, events=events, after=after)


LAST = 3  # the index of the output that came just now
ENDED = replace(AFTER, requests=(AFTER.requests or ())[1:])

CASES = [
    healthy(who_hangs_up_is_let_go),
    healthy(who_hangs_up_is_let_go, asking(is_gone=True, after=ENDED), "gone"),
    broken(
        who_hangs_up_is_let_go,
        "still-served",
        asking(is_gone=True),
        ("request r1", "its client has hung up, yet it is running"),
    ),
    healthy(outputs_end_where_they_were_asked_to),
    healthy(outputs_end_where_they_were_asked_to, asking(Finished(1, "stop"), stop=(LAST,), after=ENDED), "stopped"),
    broken(
        outputs_end_where_they_were_asked_to,
        "runs-on",
        asking(stop=(LAST,)),
        ("request r1", "goes on after its stop token 4 at position 21"),
    ),
    broken(
        outputs_end_where_they_were_asked_to,
        "stopped-by-nothing",
        asking(Finished(1, "stop"), after=ENDED),
        ("request r1", "ended by a stop token, yet none has come"),
    ),
    broken(
        outputs_end_where_they_were_asked_to,
        "cut-short",
        asking(Finished(1, "length"), after=ENDED),
        ("request r1", "ended by its length after 4 tokens, it asked for 9"),
    ),
]
