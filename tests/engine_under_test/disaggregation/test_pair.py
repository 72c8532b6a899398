"""A pair of engines gives the outputs of one engine, and frees every page on both sides."""

from dataclasses import replace

import pytest

from swarden.engine_under_test.config import EngineConfig
from swarden.engine_under_test.disaggregation.frames import FrameDamaged
from swarden.engine_under_test.engine import create_engine
from swarden.engine_under_test.errors import ConfigError, EngineError
from swarden.engine_under_test.messages import (
    Close,
    Invitation,
    KeepAlive,
    Message,
    PageAck,
    PageData,
    TransferEnd,
    TransferRequest,
)
from swarden.engine_under_test.pair import InProcessLink, Pair, create_pair
from swarden.engine_under_test.ports import Ports
from swarden.engine_under_test.sampling import SamplingParams
from swarden.fakes.clock import FakeClock
from swarden.fakes.forward import FakeForward
from swarden.fakes.link import UnsteadyLink
from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.own.mail import Mail
from swarden.harness.kit.tags import TagModel
from tests.engine_under_test.builders import ALL_POOLS, HYBRID, MOST_STEPS, flush_frees_all
from tests.engine_under_test.disaggregation.framed import frame_of, messages_of
from tests.engine_under_test.disaggregation.sides import LONG, OTHER, PROMPTS, SHORT, SIDES, Sides


def forward_alone() -> Ports:
    return Ports(FakeForward(TagModel()))


def pair_of(config: EngineConfig = HYBRID) -> Pair:
    return create_pair(config, ports=(forward_alone(), forward_alone()))


def damaged(message: Message) -> Message | None:
    """The message with its last bit flipped; None where the frame is rejected."""
    frame = bytearray(frame_of(message))
    frame[-1] ^= 1
    try:
        return messages_of(frame)[0]
    except FrameDamaged:
        return None


# --- outputs


@pytest.mark.parametrize("side", SIDES)
def test_generate_while_a_side_is_paused_raises(side):
    pair = pair_of()
    {"prefill": pair.prefill, "decode": pair.decode}[side].pause()

    with pytest.raises(EngineError, match=rf"^the {side} side is paused: .* call resume first$"):
        pair.generate([LONG], SamplingParams(4))


def test_outputs_of_other_requests_are_delivered_after_generate():
    pair = pair_of()
    other = pair.submit(OTHER, SamplingParams(3))

    pair.generate([LONG], SamplingParams(4))

    outputs = []
    while pair.has_work:
        outputs += pair.step()
    [wanted] = pair_of().generate([OTHER], SamplingParams(3))
    assert [token for output in outputs for token in output.token_ids] == wanted.token_ids
    assert (outputs[-1].request_id, outputs[-1].finish_reason) == (other, "length")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="plain"),
        pytest.param({"swa_pages": 0, "sliding_window": None}, id="full only"),
        pytest.param({"full_pages": 0}, id="swa only"),
        pytest.param({"prefix_sharing": False}, id="no sharing"),
        pytest.param({"overlap": True}, id="overlap"),
        pytest.param({"mixed_batches": True}, id="mixed batches"),
        pytest.param({"page_size": 1, "full_pages": 64, "swa_pages": 48}, id="pages of one token"),
        pytest.param({"page_size": 16, "full_pages": 8, "swa_pages": 6}, id="large pages"),
        pytest.param({"chunk_len": None}, id="prompts whole"),
        pytest.param({"chunk_len": 3}, id="chunks of less than a page"),
        pytest.param({"max_running_requests": 1}, id="one at a time"),
        pytest.param({"page_reuse": "fifo"}, id="pages reused late"),
        pytest.param({"reserved_decode_tokens": 0}, id="no reserve"),
        pytest.param({"lookahead_tokens": 3, "draft_tokens": 3}, id="drafts"),
        pytest.param({"host_full_pages": 16, "host_swa_pages": 12}, id="pools on the host"),
    ],
)
def test_pair_outputs_equal_those_of_one_engine(changes):
    config = replace(HYBRID, **changes)
    pair = pair_of(config)

    generations = pair.generate(PROMPTS, SamplingParams(8))

    generation = create_engine(config, ports=forward_alone()).generate(PROMPTS, SamplingParams(8))
    assert [(pair_output.token_ids, pair_output.finish_reason) for pair_output in generations] == [
        (output.token_ids, "length") for output in generation
    ]
    assert (pair.has_work, flush_frees_all(pair.prefill), flush_frees_all(pair.decode)) == (False, True, True)


@pytest.mark.parametrize("side", SIDES)
def test_prompt_longer_than_the_swa_pool_is_served(side):
    """49 tokens, and 24 in the pool of one side."""
    least = replace(HYBRID, swa_pages=6)
    sides = Sides(HYBRID if side == "decode" else least, decode_config=HYBRID if side == "prefill" else least)
    prompt = LONG + OTHER[:12]
    sides.submit(prompt, max_new_tokens=12)

    sides.run()

    assert (sides.outputs(), sides.reasons()["decode"]) == (sides.expected(prompt, max_new_tokens=12), "length")
    assert sides.flush_frees_all()


@pytest.mark.parametrize("max_new_tokens", [0, 1, 2])
def test_request_with_few_new_tokens_ends_with_length_on_both_sides(max_new_tokens):
    sides = Sides()
    sides.submit(LONG, max_new_tokens=max_new_tokens)

    sides.run()

    assert sides.outputs() == sides.expected(LONG, max_new_tokens=max_new_tokens)
    assert (sides.reasons(), sides.flush_frees_all()) == ({"prefill": "length", "decode": "length"}, True)


@pytest.mark.parametrize("index", [0, 2])
def test_stop_token_ends_the_request_on_either_side(index):
    sides = Sides()
    [tokens] = sides.expected(LONG, max_new_tokens=8)
    sampling = SamplingParams(8, stop_token_ids=[tokens[index]])
    for side in SIDES:
        sides.submit_late(1, LONG, sampling, to=side)

    sides.run()

    assert (sides.outputs(), sides.reasons()["decode"], sides.flush_frees_all()) == (
        [tokens[: index + 1]],
        "stop",
        True,
    )


def test_requests_of_different_namespaces_share_nothing():
    pair, one = pair_of(), create_engine(HYBRID, ports=forward_alone())
    tokens: dict[int, list[int]] = {}
    for namespace in (0, 1, 0):
        tokens[pair.submit(LONG, SamplingParams(6), namespace=namespace)] = []
    while pair.has_work:
        for output in pair.step():
            tokens[output.request_id] += output.token_ids

    [wanted] = one.generate([LONG], SamplingParams(6))
    assert (tokens[1], tokens[3], tokens[2] != tokens[1]) == (wanted.token_ids, wanted.token_ids, True)


# --- faults of the link


@pytest.mark.parametrize("skip", [0, 1, 3, 6])
@pytest.mark.parametrize("fault", sorted(UnsteadyLink.FAULTS))
def test_link_fault_does_not_change_the_outputs(fault, skip):
    plan, clock = FaultPlan(UnsteadyLink.FAULTS), FakeClock()
    ends = [UnsteadyLink(end, plan, damaged, Mail().count) for end in InProcessLink.pair()]
    ports = [Ports(FakeForward(TagModel()), clock, link=end) for end in ends]
    pair = create_pair(replace(HYBRID, max_running_requests=2), ports=(ports[0], ports[1]))
    tokens: dict[int, list[int]] = {pair.submit(prompt, SamplingParams(6)): [] for prompt in PROMPTS}
    plan.arm(fault, skip=skip, count=4)

    for _ in range(MOST_STEPS):
        for output in pair.step():
            tokens[output.request_id] += output.token_ids
        clock.advance(50)

    assert (pair.has_work, plan.fired[fault] > 0) == (False, True)
    assert list(tokens.values()) == Sides().expected(*PROMPTS, max_new_tokens=6)
    assert flush_frees_all(pair.prefill)
    assert flush_frees_all(pair.decode)


@pytest.mark.parametrize(
    ("kind", "side"),
    [
        pytest.param(TransferRequest, "prefill", id="TransferRequest"),
        pytest.param(PageData, "prefill", id="PageData"),
        pytest.param(TransferEnd, "prefill", id="TransferEnd"),
        pytest.param(Invitation, "decode", id="Invitation"),
        pytest.param(KeepAlive, "decode", id="KeepAlive"),
        pytest.param(PageAck, "decode", id="PageAck"),
        pytest.param(Close, "decode", id="Close"),
    ],
)
@ALL_POOLS
def test_lost_message_of_any_kind_is_retransmitted(config, kind, side):
    sides = Sides(replace(config, max_running_requests=1))
    sides.taps[side].dropping.append(kind)
    for prompt in PROMPTS[:3]:
        sides.submit(prompt, max_new_tokens=6)

    sides.run(ms_per_step=50)

    assert (sides.taps[side].dropping, sides.outputs()) == ([], sides.expected(*PROMPTS[:3], max_new_tokens=6))
    assert sides.flush_frees_all()


# --- faults behind the ports


@pytest.mark.parametrize("fault", ["forward.late", "forward.fails", "pool.refuses"])
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_forward_or_pool_fault_does_not_change_the_outputs(fault, skip):
    sides = Sides()
    sides.submit(LONG)
    sides.faults.arm(fault, skip=skip, count=2)

    sides.run()

    assert (sides.faults.fired[fault], sides.outputs(), sides.flush_frees_all()) == (2, sides.expected(LONG), True)


def test_prompt_that_fails_too_often_ends_on_both_sides():
    sides = Sides()
    sides.submit(LONG)
    sides.faults.arm("forward.fails", skip=1, count=3)

    sides.run()

    reason = str(sides.reasons()["prefill"])
    assert reason.startswith("forward failed: 3 times")
    assert (reason in str(sides.reasons()["decode"]), sides.flush_frees_all()) == (True, True)


# --- refused calls


@pytest.mark.parametrize("role", SIDES)
def test_submit_to_one_side_raises(role):
    engine = Sides().engines[role]

    with pytest.raises(EngineError, match=rf"^role: {role} "):
        engine.submit(SHORT, SamplingParams(1))

    assert not engine.has_work


@pytest.mark.parametrize("role", SIDES)
def test_open_session_on_one_side_raises(role):
    with pytest.raises(EngineError, match=rf"^role: {role} has no sessions"):
        Sides().engines[role].open_session()


def test_submit_transfer_to_an_engine_without_a_side_raises():
    engine = create_engine(HYBRID, ports=forward_alone())

    with pytest.raises(EngineError, match=r"^role: both "):
        engine.submit_transfer(1, SHORT, SamplingParams(1))

    assert not engine.has_work


@pytest.mark.parametrize("role", SIDES)
def test_transfer_id_that_is_not_above_the_last_raises(role):
    engine = Sides().engines[role]
    engine.submit_transfer(7, SHORT, SamplingParams(1))

    with pytest.raises(EngineError, match=r"^transfer 7: the last id was 7; "):
        engine.submit_transfer(7, SHORT, SamplingParams(1))


@pytest.mark.parametrize(
    ("role", "is_linked"),
    [
        pytest.param("prefill", False, id="prefill without a link"),
        pytest.param("decode", False, id="decode without a link"),
        pytest.param("both", True, id="both with a link"),
    ],
)
def test_role_that_does_not_fit_the_link_raises(role, is_linked):
    link = InProcessLink.pair()[0] if is_linked else None

    with pytest.raises(ConfigError, match=rf"^role: {role}"):
        create_engine(replace(HYBRID, role=role), ports=replace(forward_alone(), link=link))


def test_seed_of_a_transfer_is_the_same_on_both_sides():
    """Request ids differ between the sides, and after a restart."""
    sides = Sides()
    drawn, seeded = SamplingParams(4, temperature=1.0), SamplingParams(4, temperature=1.0, seed=5)

    for engine in sides.engines.values():
        engine.submit_transfer(7, LONG, drawn)
        engine.submit_transfer(8, LONG, seeded)

    waiting = [engine.scheduler.custody.other_side.requests for engine in sides.engines.values()]
    assert [[request.sampling.seed for request in of_one] for of_one in waiting] == [[7, 5]] * 2
