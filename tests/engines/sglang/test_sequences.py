"""Requests with several sequences: first the prompt alone, which puts it into the cache, then a request for each."""

from swarden.harness.core.ops import Abort, Recipe, Step, Submit
from swarden.invariants.events import FinishReason, Launched
from tests.engines.some_runs import events_of, served

THREE = Submit(recipe=Recipe(stretch=9), max_new_tokens=3, sequences=3)
NEWEST = "0.5.23"


def test_each_sequence_follows_the_prompt_and_is_answered(release, on_release):
    result = on_release(release, served, f"sglang=={release}", {"chunk_len": 16}, [THREE], 12)

    [first, *others] = result.outputs.values()
    assert (len(first), others) == (3, [first, first])
    assert {number: result.ends.get(number) for number in (1, 2, 3)} == dict.fromkeys((1, 2, 3), FinishReason.LENGTH)
    entries = [entry for one in events_of(result, Launched) for entry in one.entries]
    assert entries[0] == (4, 0, 9)
    assert sorted(entries[1:4]) == [(1, 8, 9), (2, 8, 9), (3, 8, 9)]


def test_client_that_is_gone_before_the_prompt_is_cached_ends_all_sequences(release, on_release):
    long = Submit(recipe=Recipe(stretch=40), max_new_tokens=3, sequences=2)

    result = on_release(release, served, f"sglang=={release}", {}, [long, Step(), Abort()], 8)

    assert (result.ends, result.num_live) == (dict.fromkeys((1, 2), FinishReason.ABORT), 0)
    assert {entry[0] for one in events_of(result, Launched) for entry in one.entries} == {3}


def test_client_that_is_gone_later_ends_all_sequences(on_release):
    result = on_release(NEWEST, served, f"sglang=={NEWEST}", {}, [THREE, *[Step()] * 5, Abort(request=1)], 4)

    assert (result.ends, result.num_live) == (dict.fromkeys((1, 2, 3), FinishReason.ABORT), 0)


def test_prompt_that_is_too_long_is_rejected_for_each_sequence(on_release):
    long = Submit(recipe=Recipe(path=(0, 1), stretch=200), sequences=2)

    result = on_release(NEWEST, served, f"sglang=={NEWEST}", {}, [long], 1)

    assert result.ends == dict.fromkeys((1, 2), FinishReason.REJECTED)
