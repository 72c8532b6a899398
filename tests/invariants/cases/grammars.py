"""A grammar that gets a token that it does not allow, and grammars ahead of or behind their answers."""

from dataclasses import replace

from swarden.invariants.events import GrammarRefused
from swarden.invariants.laws.content.grammars import (
    GrammarCode,
    grammars_follow_their_answers,
    grammars_get_only_what_they_allow,
)
from swarden.invariants.violation import found, request_ref
from tests.invariants.builders import HEALTHY, broken, during, healthy, reference

HEARD = reference(21)  # the client of r1 has three tokens behind its prompt of 18


def accepted(count, heard=HEARD):
    """A step after which the grammar of r1 has accepted so many tokens."""
    requests = [one._replace(num_accepted=count) if one.id == 1 else one for one in HEALTHY.after.requests or ()]
    return replace(HEALTHY, after=replace(HEALTHY.after, requests=tuple(requests)), reference=heard)


def behind(count):
    return found(request_ref(1), GrammarCode.BEHIND, num_accepted=count, num_outputs=3)


CASES = [
    broken(
        grammars_get_only_what_they_allow,
        "token-that-it-does-not-allow",
        during(GrammarRefused(1, 5, 2)),
        found(request_ref(1), GrammarCode.REFUSED, token=5, num_accepted=2),
    ),
    healthy(grammars_get_only_what_they_allow, accepted(3), "allowed-tokens"),
    healthy(grammars_follow_their_answers, accepted(3), "with-its-answer"),
    broken(grammars_follow_their_answers, "ahead", accepted(4), behind(4)),
    broken(grammars_follow_their_answers, "behind", accepted(2), behind(2)),
]
