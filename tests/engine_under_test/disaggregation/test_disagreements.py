"""Sides that do not mean the same: other prompts in one room, frames of another build, who comes first."""

import json
import re
from dataclasses import replace

import pytest

from engine_under_test.disaggregation.frames import FIXED, MAGIC, FrameDamaged, _checksum, decode
from engine_under_test.events import LetGo
from engine_under_test.messages import Invite, Over, Parcel
from engine_under_test.sampling import SamplingParams
from tests.engine_under_test.builders import HYBRID
from tests.engine_under_test.disaggregation.sides import LONG, SIDES, Sides


@pytest.mark.parametrize(
    ("prompt", "max_new_tokens"),
    [
        pytest.param(LONG[:-3], 4, id="a shorter one there"),
        pytest.param([*LONG, 0], 4, id="a longer one there"),
        pytest.param(LONG[::-1], 4, id="another one there"),
        pytest.param(LONG, 0, id="no token to be said there"),
    ],
)
@pytest.mark.parametrize("first", SIDES)
def test_two_requests_in_one_room_end_before_anything_is_computed(prompt, max_new_tokens, first):
    """Whoever is heard of first."""
    sides = Sides()
    sides.submit_late(1, prompt, SamplingParams(max_new_tokens), to="prefill")
    sides.submit_late(1, LONG, SamplingParams(4), to="decode")
    sides.step(first)

    sides.run(ms_per_step=1)

    assert all(reason and "the sides differ: " in reason for reason in sides.reasons().values())
    assert (sides.taps["prefill"].kinds().count("Parcel"), sides.emptied()) == (0, True)


def test_the_last_of_a_prompt_that_is_longer_there_is_named():
    sides = Sides()
    sides.submit_late(1, [*LONG, 0], SamplingParams(4), to="prefill")
    sides.submit_late(1, LONG, SamplingParams(4), to="decode")

    sides.run(ms_per_step=1)

    assert re.search(r"; a prompt of 37 tokens \([0-9a-f]{16}\) and 1 new .*38 tokens", sides.reasons()["decode"] or "")


@pytest.mark.parametrize(("small", "other"), [SIDES, SIDES[::-1]])
def test_why_it_can_never_fit_is_told_to_who_comes_later(small, other):
    configs = {small: replace(HYBRID, full_pages=9), other: HYBRID}
    sides = Sides(configs["prefill"], decode_config=configs["decode"])
    sides.submit_late(1, LONG, SamplingParams(4), to=small)
    sides.step(*SIDES)
    sides.submit_late(1, LONG, SamplingParams(4), to=other)

    sides.run()

    reason = "rejected: the prompt needs 10 full pages of 9"
    assert sides.reasons()[other] == f"the {small} side has ended it: {reason}"


def test_who_comes_late_is_invited_at_once():
    """The decode side has room long before the prefill side has heard of the request."""
    sides = Sides()
    sides.submit_late(1, LONG, SamplingParams(4), to="decode")
    sides.step("decode")
    sides.step("prefill")
    sides.submit_late(1, LONG, SamplingParams(4), to="prefill")

    sides.step("decode")

    assert [type(message) for message in sides.taps["decode"].sent].count(Invite) == 2
    sides.run()
    assert sides.outputs() == sides.expected(LONG)


@pytest.mark.parametrize("num_steps", [1, 3], ids=["between two chunks", "while it is held"])
def test_an_invitation_to_go_on_from_elsewhere_ends_the_request(num_steps):
    """The decode engine was replaced by one that has other parts of the prompt."""
    sides = Sides()
    sides.submit(LONG)
    sides.step("decode")
    sides.taps["prefill"].losing += [Parcel] * 5
    [invite] = [message for message in sides.taps["decode"].sent if isinstance(message, Invite)]
    for _ in range(num_steps):
        sides.step("prefill")

    sides.taps["decode"].send(invite._replace(prefix_len=16))
    sides.run()

    reason = "the decode side has begun anew, with 16 tokens of the prompt"
    assert (sides.reasons()["decode"], sides.emptied()) == (f"the prefill side has ended it: {reason}", True)


def test_who_is_not_done_and_is_not_wanted_ends_with_a_reason():
    """Where it was computed before, by an engine that has been replaced since."""
    sides = Sides()
    sides.submit(LONG)
    sides.step("decode", "prefill")

    sides.taps["decode"].send(Over(1))
    sides.step("prefill")

    assert sides.reasons()["prefill"] == "the decode side has ended it: it has everything already"


def test_why_the_other_side_ended_it_is_told_again_where_that_was_lost():
    sides = Sides()
    sides.submit(LONG)
    sides.step("decode", *["prefill"] * 3)
    sides.taps["decode"].losing.append(Over)
    sides.decode.abort(1)
    sides.step("decode")

    sides.clock.advance(HYBRID.link_retry_ms)
    sides.step("prefill", "decode", "prefill")

    assert sides.heard["prefill"].of(LetGo) == [LetGo(1, "abort")]


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "Whisper", "room": 1},
        {"kind": "Alive"},
        {"kind": "Alive", "room": "one"},
        {"kind": "Over", "room": 1, "reason": None},
        {"kind": "Got", "room": 1, "pool": ["full"], "first": 0, "num_pages": 1},
        {"kind": "Finale", "room": 1, "tokens": ["a"]},
        5,
        "Alive",
        None,
        {"kind": "Alive", "room": 1, "more": 2},
        {"room": 1},
        {
            "kind": "Parcel",
            "room": 1,
            "pool": "full",
            "first": 0,
            "num_pages": 1,
            "pages": {"dtype": "int3", "shape": []},
        },
    ],
)
def test_a_whole_frame_of_another_build_is_refused_as_damage(fields):
    header = json.dumps(fields).encode()
    frame = FIXED.pack(MAGIC, len(header), 0, _checksum(header, b"")) + header

    with pytest.raises(FrameDamaged, match=r"^a frame is whole, and says what nobody here understands: "):
        decode(frame)
