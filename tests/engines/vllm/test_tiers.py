"""The second tier of the release behind CPU memory: a prefix that has left CPU memory comes back from files."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.parts.disk import DISK_FAILS, DISK_FULL, DISK_LATE
from swarden.harness.kit.settings import made
from swarden.invariants.events import Fired
from tests.engines.vllm.some_requests import answer, core_of, starts

NEWEST = "0.33.0"
PROMPTS, OUTPUT_LEN = ([*range(1, 31)], [*range(31, 61)]), 4


def served_twice(engine, changes, fault):
    """The outputs of two prompts, each sent twice, where each request was admitted, and whether the fault fired.

    The CPU memory has chunks for one of them.  The device is flushed after each.  Writes fail from the first request
    on, another fault is armed after two.
    """
    built = core_of(engine, {"windows": (), "cpu_chunks": 8, "has_disk": True, **changes})
    outputs = []
    for number in range(4):
        if fault and number == (0 if fault == DISK_FULL else 2):
            built.faults.arm(fault)
        outputs.append(answer(built, PROMPTS[number % 2], OUTPUT_LEN))
        assert built.flush()
    seen = built.log.take()
    return outputs, starts(seen), Fired(fault) in seen


@pytest.mark.parametrize(
    ("changes", "fault", "loaded_lens"),
    [
        ({}, "", [0, 0, 28, 28]),
        ({"asynchronous": True, "windows": (4,), "cpu_chunks": 16}, "", [0, 0, 28, 28]),
        ({"sync_loads": True, "chunk_blocks": 2, "cpu_chunks": 4}, "", [0, 0, 24, 24]),
        ({}, DISK_LATE, [0, 0, 28, 28]),
        ({}, DISK_FAILS, [0, 0, 4, 28]),
        ({}, DISK_FULL, [0, 0, 4, 28]),
    ],
    ids=["in-the-background", "asynchronous-with-a-window", "within-the-step", "late", "a-read-fails", "a-write-fails"],
)
def test_equal_request_continues_from_the_second_tier_with_the_same_output(on_release, changes, fault, loaded_lens):
    outputs, admitted, fired = on_release(NEWEST, served_twice, f"vllm=={NEWEST}", changes, fault)

    assert outputs[:2] == outputs[2:]
    assert admitted == loaded_lens
    assert fired == bool(fault)


def test_second_tier_needs_cpu_memory_of_bounded_size():
    with pytest.raises(InvalidConfig, match="cpu_chunks is 5000 with has_disk, want at most 4096"):
        made(VllmConfig, {"cpu_chunks": 5000, "has_disk": True})
