"""An engine and its twin, at the end of a drain."""

from dataclasses import replace

from swarden.invariants.events import FinishReason
from swarden.invariants.laws.content.twins import TwinCode, twins_agree
from swarden.invariants.reference import Expectation
from swarden.invariants.transition import Transition, When
from swarden.invariants.violation import Ref, found
from tests.invariants.builders import HEALTHY, broken, healthy, reference

REQUEST = Ref("request", 1)
PROMPT_LEN = reference(18).expectations[1].prompt_len


def with_twin(
    *outputs: int, reason: str | None = None, here: str | None = None, prompt: tuple[int, ...] = ()
) -> Transition:
    """The client got all tokens of request 1 here, and these outputs from the twin, for the same prompt or another."""
    heard = reference(21)
    own = heard.expectations[1]
    own.reason = here
    tokens = [*(prompt or own.tokens[:PROMPT_LEN]), *outputs]
    heard.twins = {1: Expectation(own.namespace, len(tokens) - len(outputs), tokens, reason=reason)}
    return replace(HEALTHY, reference=heard, when=When.QUIESCENT)


OUTPUTS = reference(21).expectations[1].tokens[PROMPT_LEN:]

CASES = [
    healthy(twins_agree, with_twin(*OUTPUTS)),
    healthy(twins_agree, with_twin(*OUTPUTS[:1], reason=FinishReason.ABORT), "aborted-earlier"),
    healthy(twins_agree, with_twin(1, 2, 3, prompt=(9,)), "another-prompt"),
    healthy(twins_agree, with_twin(*OUTPUTS, 7, here=FinishReason.LENGTH), "other-limit"),
    broken(
        twins_agree,
        "other-token",
        with_twin(OUTPUTS[0] + 1),
        found(REQUEST, TwinCode.OTHER_TOKEN, position=PROMPT_LEN, token=OUTPUTS[0], other=OUTPUTS[0] + 1),
    ),
    broken(
        twins_agree,
        "goes-on-after-stop",
        with_twin(*OUTPUTS, 7, here=FinishReason.STOP),
        found(REQUEST, TwinCode.GOES_ON_AFTER_STOP, count=len(OUTPUTS), other=len(OUTPUTS) + 1),
    ),
]
