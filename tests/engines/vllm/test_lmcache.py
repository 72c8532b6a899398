"""LMCache behind the scheduler: a prefix that left the device comes back from its chunks; pins end with requests."""

import pytest

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.port import Submission
from swarden.harness.engines.vllm.parts.lmcache import POOL
from swarden.harness.engines.vllm.target import VLLM
from tests.engines.vllm.some_requests import answer, core_of, finish, starts, wanted

RELEASE, WITHOUT = "0.33.0", "0.26.0"
LONG, OUTPUT_LEN = [*range(1, 31)], 4
IS_BESIDE = any((folder / "lmcache").is_dir() for folder in VLLM.folders_of(RELEASE))
needs_lmcache = pytest.mark.skipif(not IS_BESIDE, reason="no LMCache is beside vllm 0.33.0: install it again")


def served_after_a_flush(engine, changes):
    """The outputs of two equal requests with a flush of the device between them, and where each was admitted."""
    built = core_of(engine, {"windows": (), "lmcache_chunks": 40, **changes})
    outputs = []
    for _ in range(2):
        outputs.append(answer(built, LONG, OUTPUT_LEN))
        assert built.flush()
    return outputs, wanted(built, LONG, OUTPUT_LEN), starts(built.log.take())


@needs_lmcache
@pytest.mark.parametrize("changes", [{}, {"asynchronous": True, "second_runner": True}], ids=["plain", "asynchronous"])
def test_equal_request_continues_from_the_chunks_with_the_same_output(on_release, changes):
    outputs, right, admitted = on_release(RELEASE, served_after_a_flush, f"vllm=={RELEASE}", changes)

    assert outputs == [right, right]
    assert admitted == [0, 28]


def chunks_of(engine):
    """The pool of chunks behind a request; behind a second release of a pin; and with a chunk that nothing holds."""
    built = core_of(engine, {"windows": (), "lmcache_chunks": 10})
    answer(built, LONG, OUTPUT_LEN)
    part = built.parts[-1]
    views = [built.capture()]
    chunk = next(iter(part._cached.values()))
    chunk.unpin()
    views.append(built.capture())
    part._cached.pop(next(iter(part._cached)))
    views.append(built.capture())
    pools = [next(pool for pool in view.pools if pool.name == POOL) for view in views]
    return [
        (len(pool.free), pool.num_cached, sorted({holding.locks for holding in pool.holdings}), pool.is_partitioned)
        for pool in pools
    ]


@needs_lmcache
def test_pool_shows_a_pin_released_twice_and_a_lost_chunk(on_release):
    healthy, released_twice, lost = on_release(RELEASE, chunks_of, f"vllm=={RELEASE}")

    assert healthy == (3, 7, [0], True)
    assert released_twice == (3, 7, [-1, 0], True)
    assert lost == (3, 6, [0], False)


def pins_of_a_waiting_request(engine):
    """The pins while a request waits for blocks, and those behind its answer."""
    built = core_of(engine, {"windows": (), "lmcache_chunks": 40})
    answer(built, LONG, OUTPUT_LEN)
    assert built.flush()
    assert built.pressure("blocks", 1 << 20)
    built.submit(Submission(LONG, OUTPUT_LEN, (), 0, 0))
    built.step()
    [during] = [pool for pool in built.capture().pools if pool.name == POOL]
    assert built.pressure("blocks", 0)
    finish(built)
    [behind] = [pool for pool in built.capture().pools if pool.name == POOL]
    return [len(fence.read) for fence in during.fenced], behind.fenced, [holding.locks for holding in behind.holdings]


@needs_lmcache
def test_waiting_request_pins_its_chunks_until_it_is_served(on_release):
    during, behind, counts = on_release(RELEASE, pins_of_a_waiting_request, f"vllm=={RELEASE}")

    assert during == [7]
    assert (behind, counts) == ([], [0])


def test_release_without_lmcache_says_so_in_one_line(on_release):
    with pytest.raises(InvalidConfig, match=r"no LMCache is beside vllm 0\.26\.0"):
        on_release(WITHOUT, served_after_a_flush, f"vllm=={WITHOUT}", {})
