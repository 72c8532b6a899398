"""Two engines serve as one: what clients get is the same, and nothing is left in any pool on either side."""

from dataclasses import replace

import pytest

from engine_under_test.config import EngineConfig
from engine_under_test.disaggregation.frames import FrameDamaged, decode, encode
from engine_under_test.disaggregation.link import InProcessLink
from engine_under_test.engine import create_engine
from engine_under_test.errors import ConfigError, EngineError
from engine_under_test.messages import Alive, Ask, Finale, Got, Invite, Message, Over, Parcel
from engine_under_test.pair import Pair, create_pair
from engine_under_test.ports import Ports
from engine_under_test.sampling import SamplingParams
from fakes.clock import FakeClock
from fakes.forward import FakeForward
from fakes.link import UnsteadyLink
from harness.core.faults import FaultPlan
from harness.engines.own.adapter import ReferenceModel
from tests.engine_under_test.builders import (
    HYBRID,
    MOST_STEPS,
)
from tests.engine_under_test.disaggregation.sides import (
    ALL_POOLS,
    LONG,
    OTHER,
    PROMPTS,
    SHORT,
    SIDES,
    Sides,
    is_emptied,
)


def forward_alone() -> Ports:
    return Ports(FakeForward(ReferenceModel()))


def pair_of(config: EngineConfig = HYBRID) -> Pair:
    return create_pair(config, ports=(forward_alone(), forward_alone()))


def damaged(message: Message) -> Message | None:
    """What came of a message with its last bit turned over."""
    frame = bytearray(encode(message))
    frame[-1] ^= 1
    try:
        return decode(bytes(frame))
    except FrameDamaged:
        return None


# --- what clients get


@pytest.mark.parametrize("side", SIDES)
def test_while_a_side_is_paused_nothing_is_generated(side):
    pair = pair_of()
    {"prefill": pair.prefill, "decode": pair.decode}[side].pause()

    with pytest.raises(EngineError, match=rf"^the {side} side is paused: .* call resume first$"):
        pair.generate([LONG], SamplingParams(4))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="plain"),
        pytest.param({"overlap": True}, id="overlap"),
        pytest.param({"mixed_batches": True}, id="mixed batches"),
        pytest.param({"page_size": 1, "full_pages": 64, "swa_pages": 48}, id="pages of one token"),
        pytest.param({"page_size": 16, "full_pages": 8, "swa_pages": 6}, id="large pages"),
        pytest.param({"chunk_len": None}, id="prompts whole"),
        pytest.param({"chunk_len": 3}, id="chunks of less than a page"),
        pytest.param({"max_running_requests": 1}, id="one at a time"),
        pytest.param({"page_reuse": "fifo"}, id="pages reused late"),
        pytest.param({"reserved_decode_tokens": 0}, id="no reserve"),
        pytest.param({"lookahead_tokens": 3, "draft_tokens": 3}, id="guesses"),
        pytest.param({"host_full_pages": 16, "host_swa_pages": 12}, id="pools on the host"),
    ],
)
def test_a_pair_says_what_one_engine_says(changes):
    config = replace(HYBRID, **changes)
    pair = pair_of(config)

    generations = pair.generate(PROMPTS, SamplingParams(8))

    one = create_engine(config, ports=forward_alone()).generate(PROMPTS, SamplingParams(8))
    assert [(got.token_ids, got.finish_reason) for got in generations] == [
        (wanted.token_ids, "length") for wanted in one
    ]
    assert (pair.has_work, is_emptied(pair.prefill), is_emptied(pair.decode)) == (False, True, True)


@ALL_POOLS
def test_a_pair_says_what_one_engine_says_whatever_pools_there_are(config):
    sides = Sides(config)
    for prompt in PROMPTS:
        sides.submit(prompt, max_new_tokens=8)

    sides.run()

    assert (sides.outputs(), sides.emptied()) == (sides.expected(*PROMPTS, max_new_tokens=8), True)


@pytest.mark.parametrize("side", SIDES)
def test_a_prompt_longer_than_the_swa_pool_is_served(side):
    """49 tokens, and 24 in the pool of one side."""
    least = replace(HYBRID, swa_pages=6)
    sides = Sides(HYBRID if side == "decode" else least, decode_config=HYBRID if side == "prefill" else least)
    prompt = LONG + OTHER[:12]
    sides.submit(prompt, max_new_tokens=12)

    sides.run()

    assert (sides.outputs(), sides.reasons()["decode"]) == (sides.expected(prompt, max_new_tokens=12), "length")
    assert sides.emptied()


@pytest.mark.parametrize("max_new_tokens", [0, 1, 2])
def test_an_end_that_comes_early_is_the_same(max_new_tokens):
    sides = Sides()
    sides.submit(LONG, max_new_tokens=max_new_tokens)

    sides.run()

    assert sides.outputs() == sides.expected(LONG, max_new_tokens=max_new_tokens)
    assert (sides.reasons(), sides.emptied()) == ({"prefill": "length", "decode": "length"}, True)


@pytest.mark.parametrize("index", [0, 2])
def test_a_request_stops_at_a_token_wherever_it_is_said(index):
    sides = Sides()
    [tokens] = sides.expected(LONG, max_new_tokens=8)
    sampling = SamplingParams(8, stop_token_ids=[tokens[index]])
    for side in SIDES:
        sides.submit_late(1, LONG, sampling, to=side)

    sides.run()

    assert (sides.outputs(), sides.reasons()["decode"], sides.emptied()) == ([tokens[: index + 1]], "stop", True)


def test_an_abort_ends_a_request_on_both_sides_and_no_other():
    pair = pair_of()
    rooms = [pair.submit(LONG, SamplingParams(20)) for _ in range(2)]
    for _ in range(6):
        pair.step()

    pair.abort(rooms[0])
    pair.abort(77)
    heard = [output for _ in range(MOST_STEPS) if pair.has_work for output in pair.step()]

    ends = {output.request_id: output.finish_reason for output in heard if output.finish_reason is not None}
    assert ends == {rooms[0]: "abort", rooms[1]: "length"}
    assert (pair.has_work, is_emptied(pair.prefill), is_emptied(pair.decode)) == (False, True, True)


def test_requests_of_different_namespaces_share_nothing():
    pair, one = pair_of(), create_engine(HYBRID, ports=forward_alone())
    said: dict[int, list[int]] = {}
    for namespace in (0, 1, 0):
        said[pair.submit(LONG, SamplingParams(6), namespace=namespace)] = []
    while pair.has_work:
        for output in pair.step():
            said[output.request_id] += output.token_ids

    [wanted] = one.generate([LONG], SamplingParams(6))
    assert (said[1], said[3], said[2] != said[1]) == (wanted.token_ids, wanted.token_ids, True)


# --- links that are not to be relied on


@pytest.mark.parametrize("skip", [0, 1, 3, 6])
@pytest.mark.parametrize("fault", sorted(UnsteadyLink.FAULTS))
def test_whatever_goes_wrong_at_the_link_clients_get_the_same(fault, skip):
    plan, clock = FaultPlan(UnsteadyLink.FAULTS), FakeClock()
    ends = [UnsteadyLink(end, plan, damaged) for end in InProcessLink.pair()]
    ports = [Ports(FakeForward(ReferenceModel()), clock, link=end) for end in ends]
    pair = create_pair(replace(HYBRID, max_running_requests=2), ports=(ports[0], ports[1]))
    said: dict[int, list[int]] = {pair.submit(prompt, SamplingParams(6)): [] for prompt in PROMPTS}
    plan.arm(fault, skip=skip, count=4)

    for _ in range(MOST_STEPS):
        for output in pair.step():
            said[output.request_id] += output.token_ids
        clock.advance(50)

    assert (pair.has_work, plan.fired[fault] > 0) == (False, True)
    assert list(said.values()) == Sides().expected(*PROMPTS, max_new_tokens=6)
    assert is_emptied(pair.prefill)
    assert is_emptied(pair.decode)


@pytest.mark.parametrize(
    ("kind", "side"),
    [
        pytest.param(Ask, "prefill", id="Ask"),
        pytest.param(Parcel, "prefill", id="Parcel"),
        pytest.param(Finale, "prefill", id="Finale"),
        pytest.param(Invite, "decode", id="Invite"),
        pytest.param(Alive, "decode", id="Alive"),
        pytest.param(Got, "decode", id="Got"),
        pytest.param(Over, "decode", id="Over"),
    ],
)
@ALL_POOLS
def test_a_lost_message_of_any_kind_costs_nothing_but_time(config, kind, side):
    sides = Sides(replace(config, max_running_requests=1))
    sides.taps[side].losing.append(kind)
    for prompt in PROMPTS[:3]:
        sides.submit(prompt, max_new_tokens=6)

    sides.run(ms_per_step=50)

    assert (sides.taps[side].losing, sides.outputs()) == ([], sides.expected(*PROMPTS[:3], max_new_tokens=6))
    assert sides.emptied()


# --- faults behind the ports


@pytest.mark.parametrize("fault", ["forward.late", "forward.fails", "pool.refuses"])
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_fault_behind_the_ports_loses_nothing(fault, skip):
    sides = Sides()
    sides.submit(LONG)
    sides.faults.arm(fault, skip=skip, count=2)

    sides.run()

    assert (sides.faults.fired[fault], sides.outputs(), sides.emptied()) == (2, sides.expected(LONG), True)


def test_a_prompt_that_fails_too_often_ends_on_both_sides():
    sides = Sides()
    sides.submit(LONG)
    sides.faults.arm("forward.fails", skip=1, count=3)

    sides.run()

    reason = str(sides.reasons()["prefill"])
    assert reason.startswith("forward failed 3 times")
    assert (sides.reasons()["decode"], sides.emptied()) == (f"the prefill side has ended it: {reason}", True)


# --- what is refused


@pytest.mark.parametrize("role", SIDES)
def test_a_side_serves_no_request_alone(role):
    engine = Sides().engines[role]

    with pytest.raises(EngineError) as caught:
        engine.submit(SHORT, SamplingParams(1))

    assert str(caught.value) == f"role: {role} serves no request alone; submit it to a room, on both sides"
    assert not engine.has_work


@pytest.mark.parametrize("role", SIDES)
def test_a_side_has_no_sessions(role):
    with pytest.raises(EngineError) as caught:
        Sides().engines[role].open_session()

    assert str(caught.value) == f"role: {role} has no sessions: its requests go on in another engine"


def test_a_whole_engine_has_no_rooms():
    engine = create_engine(HYBRID, ports=forward_alone())

    with pytest.raises(EngineError) as caught:
        engine.submit_to_room(1, SHORT, SamplingParams(1))

    assert str(caught.value) == "role: both serves each request alone; submit it, or make an engine for one side"
    assert not engine.has_work


@pytest.mark.parametrize(
    ("role", "is_linked", "given"),
    [
        pytest.param("prefill", False, "not given", id="prefill without a link"),
        pytest.param("decode", False, "not given", id="decode without a link"),
        pytest.param("both", True, "given", id="both with a link"),
    ],
)
def test_a_side_needs_a_link_and_nobody_else_has_one(role, is_linked, given):
    link = InProcessLink.pair()[0] if is_linked else None

    with pytest.raises(ConfigError) as caught:
        create_engine(replace(HYBRID, role=role), ports=replace(forward_alone(), link=link))

    assert str(caught.value) == f"role: {role}, and a link is {given}; a side of a pair needs one, and nobody else"


def test_what_is_drawn_for_a_room_is_the_same_on_both_sides_and_after_a_restart():
    """Ids are each side's own, and begin anew with it."""
    sides = Sides()
    drawn, seeded = SamplingParams(4, temperature=1.0), SamplingParams(4, temperature=1.0, seed=5)

    for engine in sides.engines.values():
        engine.submit_to_room(7, LONG, drawn)
        engine.submit_to_room(8, LONG, seeded)

    waiting = [engine.scheduler.custody.other_side.requests for engine in sides.engines.values()]
    assert [[request.sampling.seed for request in of_one] for of_one in waiting] == [[7, 5]] * 2
