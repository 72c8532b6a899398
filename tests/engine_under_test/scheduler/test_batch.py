"""The forward batch: the tokens of each entry, and the pages that the layers of each pool read."""

import pytest

from swarden.engine_under_test.ports import ForwardEntry, PageSpan
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.scheduler.batch import Entry, forward_batch
from tests.engine_under_test.builders import HYBRID, SWA_ONLY, CacheBench

KEY = list(range(100, 124))


def pass_over(start: int, end: int, *, max_new_tokens: int = 1, config=HYBRID):
    """A pass over [start, end) of KEY, with the pages of [0, end) in the order 1, 2, 3…"""
    bench = CacheBench(config)
    request = bench.start(KEY)
    request.sampling = SamplingParams(max_new_tokens)
    bench.compute(request, end)
    entry = Entry(request, bench.custody.record(request), start, end, completes_input=end == len(KEY))
    return forward_batch(bench.memory, 7, [entry])


@pytest.mark.parametrize(
    ("end", "max_new_tokens", "num_samples"),
    [
        pytest.param(20, 1, 0, id="the input is not complete"),
        pytest.param(24, 1, 1, id="the end of the input"),
        pytest.param(24, 0, 0, id="no output is wanted"),
    ],
)
def test_an_entry_samples_at_the_end_of_its_input(end, max_new_tokens, num_samples):
    batch = pass_over(16, end, max_new_tokens=max_new_tokens)

    sampling = SamplingParams(max_new_tokens)
    assert batch.entries == [ForwardEntry(1, 0, KEY[16:end], 16, end, num_samples, sampling=sampling)]


@pytest.mark.parametrize(
    ("start", "end", "span"),
    [
        pytest.param(0, 8, PageSpan(0, 0, 2), id="from the start"),
        pytest.param(5, 8, PageSpan(0, 0, 2), id="the window reaches the start"),
        pytest.param(8, 12, PageSpan(0, 0, 3), id="the window reaches into the first page"),
        pytest.param(9, 12, PageSpan(4, 0, 2), id="the window begins with the second page"),
        pytest.param(20, 24, PageSpan(12, 0, 3), id="far from the start"),
    ],
)
def test_windowed_pool_gets_the_pages_from_the_start_of_the_window(start, end, span):
    [_, swa] = pass_over(start, end).pools

    assert (swa.name, swa.window, swa.spans, len(swa.pages)) == ("swa", 6, [span], span.num_pages)


def test_a_full_pool_gets_every_page():
    [full, _] = pass_over(20, 24).pools

    assert (full.name, full.window, full.spans, len(full.pages)) == ("full", None, [PageSpan(0, 0, 6)], 6)


def test_the_spans_of_several_entries_follow_each_other():
    bench = CacheBench(SWA_ONLY)
    entries = []
    for tokens in (KEY[:8], KEY[12:24]):
        request = bench.start(tokens)
        bench.compute(request, len(tokens))
        entries.append(Entry(request, bench.custody.record(request), 0, len(tokens), completes_input=True))

    [swa] = forward_batch(bench.memory, 1, entries).pools

    assert (swa.spans, swa.pages.tolist()) == ([PageSpan(0, 0, 2), PageSpan(0, 2, 3)], [12, 11, 10, 9, 8])
