"""The pool of recurrent states: the pages that a request takes, the states that a pass stores, and their use."""

from dataclasses import replace
from random import Random

import pytest

from swarden.engine_under_test.cache.record import KVRecord
from swarden.engine_under_test.components import UNBOUNDED, FullAttention, RecurrentState
from swarden.engine_under_test.units import request_owner
from swarden.invariants.events import CopyBegan, CopyEnded, Recovered, Tombstoned
from tests.engine_under_test.builders import HYBRID, CacheBench, Serving, node_spans
from tests.engine_under_test.host.serving import serving_with_host

RECURRENT = replace(HYBRID, state_pages=9, state_interval=8, full_pages=30, poison_freed_pages=True)
HOSTED = replace(RECURRENT, host_full_pages=40, host_swa_pages=16, host_state_pages=12, load_back_threshold=1)
KEY = list(range(100, 140))


def states_of(*, interval: int | None = None, slots: int = 3, page_size: int = 4) -> RecurrentState:
    return RecurrentState("state", 9, page_size, slots=slots, interval=interval)


@pytest.mark.parametrize(
    ("interval", "count", "slack", "capacity"),
    [
        pytest.param(None, 1, 3, 7, id="one page holds its own tokens"),
        pytest.param(None, 2, 0, UNBOUNDED, id="two pages hold any end"),
        pytest.param(16, 4, 3, 32, id="a page for each checkpoint"),
        pytest.param(4, 4, 3, 19, id="checkpoints at each page"),
        pytest.param(None, -1, 3, -1, id="fewer pages than are reserved"),
    ],
)
def test_chunk_is_as_long_as_its_states_have_pages(interval, count, slack, capacity):
    assert states_of(interval=interval).chunk_capacity(count, slack=slack) == capacity


@pytest.mark.parametrize(
    ("length", "is_retained"),
    [
        pytest.param(23, True, id="the end of the last pass"),
        pytest.param(22, True, id="a token before it"),
        pytest.param(21, False, id="overwritten, or never stored"),
        pytest.param(20, True, id="a page boundary"),
    ],
)
def test_the_newest_states_and_those_at_page_boundaries_are_retained(length, is_retained):
    assert states_of().retains(length, written_len=23) is is_retained


@pytest.mark.parametrize(
    ("length", "is_there"),
    [
        pytest.param(20, True, id="before the hole"),
        pytest.param(24, False, id="a boundary in the hole"),
        pytest.param(28, False, id="the end of the hole"),
        pytest.param(32, True, id="behind the hole"),
        pytest.param(8, True, id="the end of the shared prefix, which is not the record's own"),
    ],
)
def test_a_record_continues_only_where_it_has_a_state(length, is_there):
    bench = CacheBench()
    receipt = bench.custody.record(bench.start([1])).receipt
    record = KVRecord(request_owner(9), 1, receipt, 8, 40, 40, 40, handles=list(range(1, 11)), written_len=40)
    record.skip("state", [4, 7, 8, 9], 2, 10, page_size=4)
    record.holes["state"].insert(0, range(4, 8))

    assert record.can_continue(length, (FullAttention("full", 30, 4), states_of())) is is_there
    assert list(record.private_parts(4)) == [([3, 4], ["state"]), ([5], []), ([6, 7], ["state"]), ([8, 9, 10], [])]


def test_a_cached_prefix_has_states_at_its_end_and_at_checkpoints():
    serving = Serving(RECURRENT)
    serving.serve(KEY[:15], max_new_tokens=0)

    assert node_spans(serving.engine.cache.tree) == [
        (0, 4, "full swa"),
        (4, 8, "full swa state"),
        (8, 12, "full swa state"),
    ]
    assert serving.engine.cache.match(KEY[:9], 0).length == 8


def test_a_chunk_ends_where_a_prompt_leaves_a_cached_one():
    """The third prompt with these tokens starts from a state at that place, where the first prompt had left none."""
    serving = Serving(replace(RECURRENT, state_interval=None, chunk_len=None))
    serving.serve(KEY, max_new_tokens=0)

    served = [serving.serve([*KEY[:14], token, 1, 2], max_new_tokens=1).cached_tokens for token in (7, 8)]

    assert served == [0, 12]
    assert serving.passes[1:3] == [((2, 0, 12),), ((2, 12, 17),)]


def test_a_state_alone_is_loaded_for_a_prefix_whose_other_pages_are_cached():
    serving = serving_with_host(HOSTED)
    serving.serve(KEY[:9], max_new_tokens=1)
    serving.serve(KEY[:20], max_new_tokens=1)
    serving.engine.cache.evict({"state": 1})  # the state at 8, as 16 is the end of a branch

    served = serving.serve([*KEY[:8], 1, 2], max_new_tokens=6)

    [load] = [event for event in serving.log.of(CopyBegan) if not event.to_host]
    assert [pool for pool, _, _ in load.pages] == ["state"]
    assert (served.cached_tokens, served.tokens) == (8, serving.expected([*KEY[:8], 1, 2], max_new_tokens=6))


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(RECURRENT, id="plain"),
        pytest.param(replace(RECURRENT, swa_pages=0, sliding_window=None), id="no window"),
        pytest.param(replace(RECURRENT, state_interval=None), id="no checkpoints"),
        pytest.param(replace(RECURRENT, overlap=True, mixed_batches=True), id="overlap and mixed batches"),
        pytest.param(replace(RECURRENT, lookahead_tokens=4, draft_tokens=3, state_slots=5), id="drafts"),
        pytest.param(HOSTED, id="host tier"),
        pytest.param(replace(HOSTED, host_policy="write_back", overlap=True), id="write-back and overlap"),
    ],
)
def test_engine_with_states_generates_what_the_model_does_without_a_cache(config):
    """Prefixes are shared, evicted, recovered and loaded."""
    serving = serving_with_host(config) if config.host_pools else Serving(config)
    random = Random(1)
    served = []
    for _ in range(20):
        prompt, max_new_tokens = KEY[: random.randint(1, 40)] + random.choices((1, 2), k=2), random.randint(1, 14)
        served.append((serving.submit(prompt, max_new_tokens=max_new_tokens), prompt, max_new_tokens))
        serving.step(random.randint(0, 4))
    serving.run()

    for request_id, prompt, max_new_tokens in served:
        assert serving.tokens(request_id) == serving.expected(prompt, max_new_tokens=max_new_tokens)
    assert "state" in {event.component for event in serving.log.of(Tombstoned)}
    assert sum(one.cached_tokens for one in serving.received.values())
    assert serving.log.of(CopyEnded if config.host_pools else Recovered)
    assert serving.flush_frees_all()
