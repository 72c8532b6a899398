"""Sides that do not mean the same: other prompts in one room, frames of another build, who comes first."""

import json

import pytest

from engine_under_test.disaggregation.frames import FIXED, MAGIC, FrameDamaged, _checksum, decode
from engine_under_test.messages import Invite
from engine_under_test.sampling import SamplingParams
from tests.engine_under_test.disaggregation.sides import LONG, Sides


@pytest.mark.parametrize("more", [-3, 4], ids=["shorter-there", "longer-there"])
def test_two_prompts_in_one_room_end_with_both_lengths_named(more):
    sides = Sides()
    there = LONG[:more] if more < 0 else [*LONG, *range(more)]
    sides.submit_late(1, there, SamplingParams(4), to="prefill")
    sides.submit_late(1, LONG, SamplingParams(4), to="decode")

    sides.run(ms_per_step=1)

    said = f"the prompts differ: {len(there)} tokens there, {len(LONG)} here; give both sides the same prompt"
    assert sides.reasons()["decode"] == said
    assert sides.emptied()


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


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "Whisper", "room": 1},
        {"kind": "Alive"},
        {"kind": "Alive", "room": "one"},
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
