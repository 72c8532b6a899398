"""Requests to one engine core, in its process."""

from typing import Any

from swarden.harness.core.port import Submission
from swarden.harness.core.registry import target_of
from swarden.invariants.events import Admitted
from swarden.invariants.reference import Expectation

PROMPT = [*range(1, 15)]


def core_of(engine, settings) -> Any:
    target = target_of(engine)
    return target.build(target.decode(settings))


def finish(built):
    """Make steps until nothing is left to do; returns what the clients get."""
    streamed = []
    while built.has_work:
        streamed += built.step()
    return streamed


def answer(built, prompt, output_len):
    """The output of one request."""
    built.submit(Submission(prompt, output_len, (), 0, 0))
    return [token for answer in finish(built) for token in answer.token_ids]


def wanted(built, prompt, output_len):
    """The output that the tags of a prompt want."""
    known, expected = built.reference(), Expectation(0, len(prompt), list(prompt))
    for position in range(len(prompt), len(prompt) + output_len):
        expected.extend([expected.next_token(position, windows=known.windows, vocabulary=known.vocabulary)])
    return expected.tokens[len(prompt) :]


def starts(events):
    """The first positions that were computed, by admission."""
    return [event.start for event in events if isinstance(event, Admitted)]
