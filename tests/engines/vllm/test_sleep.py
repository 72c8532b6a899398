"""Sleep discards the KV: a request that was running is computed again after the engine wakes up."""

from swarden.harness.core.port import Submission
from swarden.harness.core.registry import target_of
from swarden.invariants.events import Admitted
from swarden.invariants.reference import Expectation

PROMPT, OUTPUT_LEN = [*range(1, 15)], 8
STEPS_BEFORE = 4


def served_over_a_sleep(engine):
    """The output of a request during which the engine sleeps, the expected one, and where it was admitted each time."""
    target = target_of(engine)
    built = target.build(target.decode({"sleeps": True, "asynchronous": True}))
    built.submit(Submission(PROMPT, OUTPUT_LEN, (), 0, 0))
    streamed = [one for _ in range(STEPS_BEFORE) for one in built.step()]
    assert built.pause()
    while not built.capture().is_paused:
        streamed += built.step()
    built.resume()
    while built.has_work:
        streamed += built.step()
    known = built.reference()
    expected = Expectation(0, len(PROMPT), list(PROMPT))
    for position in range(len(PROMPT), len(PROMPT) + OUTPUT_LEN):
        expected.extend([expected.next_token(position, windows=known.windows, vocabulary=known.vocabulary)])
    output = [token for one in streamed for token in one.token_ids]
    return output, expected.tokens[len(PROMPT) :], [e.start for e in built.log.take() if isinstance(e, Admitted)]


def test_request_continues_with_the_same_output_after_a_sleep(on_release):
    output, expected, admitted = on_release("0.33.0", served_over_a_sleep, "vllm==0.33.0")

    assert output == expected
    assert admitted == [0, 0]
