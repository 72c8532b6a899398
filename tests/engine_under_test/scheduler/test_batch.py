"""The forward batch: the tokens of each entry, and the pages that the layers of each pool read."""

from swarden.engine_under_test.ports import PageSpan
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.scheduler.batch import Entry, forward_batch
from tests.engine_under_test.builders import SWA_ONLY, CacheBench

KEY = list(range(100, 124))


def pass_over(start: int, end: int):
    """A pass over [start, end) of KEY, with the pages of [0, end) in the order 1, 2, 3…"""
    bench = CacheBench()
    request = bench.start(KEY)
    request.sampling = SamplingParams(1)
    bench.compute(request, end)
    entry = Entry(request, bench.custody.record(request), start, end, completes_input=end == len(KEY))
    return forward_batch(bench.memory, 7, [entry])


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
