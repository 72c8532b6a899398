"""Sleep discards the KV: a request that was running is computed again after the engine wakes up."""

from swarden.harness.core.port import Submission
from tests.engines.vllm.some_requests import PROMPT, core_of, finish, starts, wanted

OUTPUT_LEN, STEPS_BEFORE = 8, 4


def served_over_a_sleep(engine):
    """The output of a request during which the engine sleeps, the expected one, and where it was admitted each time."""
    built = core_of(engine, {"sleeps": True, "asynchronous": True})
    built.submit(Submission(PROMPT, OUTPUT_LEN, (), 0, 0))
    streamed = [output for _ in range(STEPS_BEFORE) for output in built.step()]
    assert built.pause()
    while not built.capture().is_paused:
        streamed += built.step()
    built.resume()
    output = [token for part in [*streamed, *finish(built)] for token in part.token_ids]
    return output, wanted(built, PROMPT, OUTPUT_LEN), starts(built.log.take())


def test_request_continues_with_the_same_output_after_a_sleep(on_release):
    output, expected, admitted = on_release("0.33.0", served_over_a_sleep, "vllm==0.33.0")

    assert output == expected
    assert admitted == [0, 0]
