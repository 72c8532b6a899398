"""The release's MooncakeStoreConnector: a prefix that has left the device comes back from the store, by its hashes."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.ops import OpenSession, Pressure, Recipe, Step, Turn
from swarden.harness.core.port import Submission
from swarden.harness.core.registry import target_of
from swarden.harness.core.system import EngineSystem
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.parts.mooncake import STORE_FULL
from swarden.harness.kit.settings import made
from swarden.invariants.events import CopiedIn
from tests.engines.vllm.some_requests import answer, core_of, finish, starts, wanted

NEWEST, OLDEST = "0.33.0", "0.26.0"
LONG, OUTPUT_LEN = [*range(1, 31)], 4


def served_after_a_flush(engine, changes, *, is_full=False):
    """The outputs of two equal requests with a flush of the device between them, and where each was admitted."""
    built = core_of(engine, {"windows": (), "mooncake_blocks": 40, **changes})
    if is_full:
        built.faults.arm(STORE_FULL, count=100)
    outputs = []
    for _ in range(2):
        outputs.append(answer(built, LONG, OUTPUT_LEN))
        assert built.flush()
    return outputs, wanted(built, LONG, OUTPUT_LEN), starts(built.log.take())


@pytest.mark.parametrize(
    ("release", "changes"),
    [
        (OLDEST, {}),
        (NEWEST, {"late_look_ups": True, "asynchronous": True}),
        (NEWEST, {"windows": (4,), "second_runner": True}),
        (NEWEST, {"state_groups": 1}),
    ],
    ids=["oldest", "asynchronous", "window", "states"],
)
def test_equal_request_continues_from_the_store_with_the_same_output(on_release, release, changes):
    outputs, right, admitted = on_release(release, served_after_a_flush, f"vllm=={release}", changes)

    assert outputs == [right, right]
    assert admitted == [0, 28]


def test_prompt_that_the_store_had_no_room_for_is_computed_again(on_release):
    outputs, right, admitted = on_release(NEWEST, full, f"vllm=={NEWEST}")

    assert outputs == [right, right]
    assert admitted == [0, 0]


def full(engine):
    return served_after_a_flush(engine, {}, is_full=True)


def freed_after_an_abort(engine):
    """The free blocks at the begin, and behind a request that was aborted while a save keeps its blocks."""
    built = core_of(engine, {"windows": (), "mooncake_blocks": 40, "asynchronous": True})
    before = built.built.pool.get_num_free_blocks()
    number = built.submit(Submission(LONG, OUTPUT_LEN, (), 0, 0))
    for _ in range(3):
        built.step()
    assert built.moves.copies, "no save keeps a block"
    built.abort(number)
    finish(built)
    return before, built.built.pool.get_num_free_blocks()


def test_save_gives_its_blocks_back_after_an_abort(on_release):
    before, after = on_release(NEWEST, freed_after_an_abort, f"vllm=={NEWEST}")

    assert after == before


def test_several_groups_are_refused_on_a_release_that_dies_of_a_failed_load(on_release):
    with pytest.raises(InvalidConfig, match=r"want neither for vllm 0\.26\.0"):
        on_release(OLDEST, core_of, f"vllm=={OLDEST}", {"windows": (4,), "mooncake_blocks": 40})


def test_mooncake_store_beside_cpu_memory_is_refused():
    with pytest.raises(InvalidConfig, match="cpu_chunks is 8 with mooncake_blocks 40, want 0"):
        made(VllmConfig, {"mooncake_blocks": 40, "cpu_chunks": 8})


def loads_of_a_second_turn(engine):
    """The numbers of both turns of a session, and of those for which a load begins; the second one is preempted."""
    target = target_of(engine)
    settings = {"streaming_input": True, "mooncake_blocks": 40, "windows": [], "num_blocks": 48}
    system = EngineSystem(target.build(target.decode(settings)))
    first, second = (Turn(recipe=Recipe(path=path), max_new_tokens=12) for path in ((0, 1, 2), (3,)))
    steps, all_blocks = (Step(),) * 16, Pressure(pages=48)
    loads = []
    for op in (OpenSession(), first, *steps, second, Step(), all_blocks, *steps, all_blocks, Pressure(), *steps):
        system.do(op)
        loads += [event.owner.id for event in system.take_events() if isinstance(event, CopiedIn)]
    return list(system.submitted), loads


def test_load_of_a_later_turn_of_a_session_counts_as_its_own(on_release):
    (_, second), loads = on_release(NEWEST, loads_of_a_second_turn, f"vllm=={NEWEST}")

    assert loads == [second]
