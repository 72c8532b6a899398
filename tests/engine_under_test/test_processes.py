"""Two engines in processes of their own: they answer as one does, and survive the death of either."""

import os
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from time import monotonic

import pytest

from engine_under_test.config import EngineConfig
from engine_under_test.engine import create_engine
from engine_under_test.errors import CheckpointError, EngineError
from engine_under_test.ports import ForwardBatch, Ports
from engine_under_test.processes import SIDES, Asked, Built, Occupancy, ProcessPair
from engine_under_test.sampling import SamplingParams
from fakes.forward import FakeForward
from harness.engines.own.adapter import ReferenceModel

CONFIG = EngineConfig(
    page_size=4,
    full_pages=96,
    swa_pages=24,
    sliding_window=9,
    max_running_requests=4,
    max_context_len=256,
    chunk_len=16,
    link_retry_ms=50,
    link_timeout_ms=60_000,
)
PROMPTS = [list(range(first, first + length)) for first, length in enumerate((37, 5, 120, 64, 16, 90, 33, 8))]
ASKED = SamplingParams(12)
DEADLY = 666
MOST_S = 20.0  # until nothing is held: many times the time-out of the link
GIVEN_UP = "the prefill process has died 2 times with it"


def fake_ports() -> Ports:
    return Ports(FakeForward(ReferenceModel()))


class DeadlyForward(FakeForward):
    """One token kills the process that is to compute it."""

    def launch(self, batch: ForwardBatch) -> None:
        if any(DEADLY in entry.tokens for entry in batch.entries):
            os._exit(1)
        super().launch(batch)


def deadly_ports() -> Ports:
    return Ports(DeadlyForward(ReferenceModel()))


def failing_ports() -> Ports:
    raise OSError("no device")


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return [one.token_ids for one in create_engine(CONFIG, ports=fake_ports()).generate(PROMPTS, ASKED)]


@pytest.fixture(scope="module")
def pair():
    pair = ProcessPair(Built(CONFIG, ports=fake_ports))
    yield pair
    pair.close()


def is_idle(pools: Mapping[str, Occupancy]) -> bool:
    return all(one.is_idle for one in pools.values())


def served(pair: ProcessPair) -> None:
    """Step until every request has ended, or for so long that none will any more."""
    until = monotonic() + 2 * MOST_S
    while pair.has_work and monotonic() < until:
        pair.step()


def answers(pair: ProcessPair) -> list[list[int]]:
    return [one.token_ids for one in pair.generate(PROMPTS, ASKED)]


def test_they_answer_as_one_engine_does(pair, expected):
    assert answers(pair) == expected


def test_what_the_prefill_process_had_not_handed_over_is_served_by_the_next_one(pair, expected):
    rooms = [pair.submit(prompt, ASKED) for prompt in PROMPTS]
    os.kill(pair.prefill.pid, signal.SIGKILL)

    said: dict[int, list[int]] = {room: [] for room in rooms}
    while pair.has_work:
        for output in pair.step():
            said[output.request_id] += output.token_ids

    assert list(said.values()) == expected
    assert answers(pair) == expected


def test_whom_the_decode_process_served_ends_with_the_reason_and_others_are_served_again(pair, expected):
    rooms = [pair.submit(prompt, ASKED) for prompt in PROMPTS]
    os.kill(pair.decode.pid, signal.SIGKILL)

    ends = Counter[str | None]()
    while pair.has_work:
        ends.update(output.finish_reason for output in pair.step() if output.finish_reason is not None)

    assert ends.total() == len(rooms)
    assert ends.keys() <= {"the decode process has died", "length"}
    assert ends["the decode process has died"]
    assert answers(pair) == expected


def test_who_has_ended_before_the_decode_process_dies_ends_once(pair, expected):
    """Its end was heard with what is asked next, and the client has not been told of it."""
    first = pair.submit(PROMPTS[1], ASKED)
    while not any(output.finish_reason for output in pair._heard):
        pair._listen()
    second = pair.submit(PROMPTS[0], ASKED)
    os.kill(pair.decode.pid, signal.SIGKILL)
    third = pair.submit(PROMPTS[3], ASKED)

    ends = Counter[int]()
    while pair.has_work:
        ends.update(output.request_id for output in pair.step() if output.finish_reason is not None)

    assert ends == {first: 1, second: 1, third: 1}
    assert answers(pair) == expected


def test_what_is_no_number_reaches_neither_process(pair, expected):
    with pytest.raises(TypeError):
        pair.submit(PROMPTS[0], ASKED, priority="high")

    assert answers(pair) == expected


def test_logits_are_refused_before_either_process_hears_of_it(pair, expected):
    with pytest.raises(EngineError, match=r"^return_logits: "):
        pair.submit(PROMPTS[0], SamplingParams(4, return_logits=True))

    assert answers(pair) == expected


@pytest.mark.parametrize(("victim", "other"), [SIDES, SIDES[::-1]])
def test_nothing_is_held_for_a_process_that_died_in_the_middle(victim, other):
    """It died while the other one held something; whoever is silent is given up after a second."""
    with closing(ProcessPair(Built(replace(CONFIG, link_timeout_ms=1000), ports=fake_ports))) as pair:
        until = monotonic() + MOST_S
        while is_idle(pair.occupancy()[other]) and monotonic() < until:
            pair.submit(PROMPTS[2], SamplingParams(100))
        was_idle = is_idle(pair.occupancy()[other])
        os.kill({"prefill": pair.prefill, "decode": pair.decode}[victim].pid, signal.SIGKILL)

        served(pair)
        until = monotonic() + MOST_S
        while not all(map(is_idle, pair.occupancy().values())) and monotonic() < until:
            pair.step()

        are_idle = {role: is_idle(pools) for role, pools in pair.occupancy().items()}
    assert (was_idle, are_idle) == (False, dict.fromkeys(SIDES, True))


def test_why_there_can_be_no_engine_is_said_to_whoever_asked_for_it(tmp_path):
    with pytest.raises(CheckpointError, match=r"config\.json"):
        ProcessPair(Built(CONFIG, str(tmp_path)))


def test_an_abort_ends_a_request_on_both_sides(pair, expected):
    room = pair.submit(PROMPTS[2], SamplingParams(100))
    pair.abort(room)

    ends = []
    while pair.has_work:
        ends += [output.finish_reason for output in pair.step() if output.finish_reason is not None]

    assert ends == ["abort"]
    assert answers(pair) == expected


def test_whoever_kills_one_process_after_another_is_given_up_and_others_are_served(expected):
    """Four run at most: nobody behind the first four can have been there."""
    pair = ProcessPair(Built(replace(CONFIG, max_forward_retries=1), ports=deadly_ports))
    generations = pair.generate([[DEADLY] * 20, *PROMPTS], ASKED)
    pair.close()

    reasons = [one.finish_reason for one in generations]
    said = zip(generations[1:], expected, strict=True)
    assert (reasons[0], {*reasons[1:4]} <= {reasons[0], "length"}) == (GIVEN_UP, True)
    assert reasons[4:] == ["length"] * 5
    assert all(one.token_ids == wanted for one, wanted in said if one.finish_reason == "length")


def test_a_client_that_asks_and_does_not_listen_stops_nobody(expected):
    """Of what is asked, and of the answers, there is more than a pipe holds."""
    pair, many = ProcessPair(Built(CONFIG, ports=fake_ports)), 400
    said: dict[int, list[int]] = {room: [] for room in range(1, many + 1)}
    for room in said:
        for side in (pair.prefill, pair.decode):
            side.ask(Asked(room, PROMPTS[room % 8], ASKED, 0, 0))
    num_ended = 0
    while num_ended < many:
        for output in pair.decode.heard() or ():
            said[output.request_id] += output.token_ids
            num_ended += output.finish_reason is not None
    pair.close()

    assert [said[room] for room in said] == [expected[room % 8] for room in said]


def test_a_process_that_does_not_come_up_is_told():
    with pytest.raises(EngineError, match=r"^the prefill process has ended before it was there; see above why$"):
        ProcessPair(Built(CONFIG, ports=failing_ports))
