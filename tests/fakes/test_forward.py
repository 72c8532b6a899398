"""The fake forward: tags chain from slot to slot, and a wrong page shows in what is read, written and sampled."""

import pytest
import torch

from engine_under_test.ports import ForwardBatch, ForwardEntry, ForwardFailed, PageSpan, PoolPages
from fakes.faults import FaultPlan, faults_of
from fakes.forward import RUBBISH, FakeForward, TagRead, TagWritten

PAGE = 4


class Letters:
    """A model whose tags can be read: a tag is the tokens so far as decimal digits behind the namespace."""

    def namespace_tag(self, namespace: int) -> int:
        return namespace

    def next_tag(self, previous: int, token: int) -> int:
        return previous * 10 + token

    def sampled_token(self, sums) -> int:
        return sum(sums)


class Device:
    """One pool of six pages, and passes over it."""

    def __init__(self, *, window: int | None = None) -> None:
        self.kv = torch.zeros((7, PAGE), dtype=torch.int64)
        self.window = window
        self.noted: list[TagRead | TagWritten] = []
        self.plan = FaultPlan(faults_of(FakeForward))
        self.forward = FakeForward(Letters(), note=self.noted.append, plan=self.plan)

    def run(self, entries, pages, spans) -> list[int | None] | None:
        pool = PoolPages("pool", self.window, self.kv, torch.tensor(pages), spans)
        self.forward.launch(ForwardBatch(1, PAGE, entries, [pool]))
        return self.forward.collect(1)


def test_a_slot_holds_the_tag_of_the_prefix_that_ends_there():
    device = Device()

    device.run([ForwardEntry(1, 9, [1, 2, 3, 4, 5], 0, 5, samples=True)], [3, 2], [PageSpan(0, 0, 2)])

    assert (device.kv[3].tolist(), device.kv[2].tolist()) == ([91, 912, 9123, 91234], [912345, 0, 0, 0])


def test_a_tag_is_chained_to_the_one_that_is_stored_before_it():
    device = Device()
    device.kv[3, 3] = 7

    device.run([ForwardEntry(1, 0, [5, 6], 4, 6, samples=True)], [3, 2], [PageSpan(0, 0, 2)])

    assert device.kv[2].tolist() == [75, 756, 0, 0]


def test_a_span_begins_at_the_position_it_says():
    device = Device(window=2)
    device.kv[3, 3] = 7

    device.run([ForwardEntry(1, 0, [5], 8, 9, samples=True)], [3, 2], [PageSpan(4, 0, 2)])

    assert device.kv[2].tolist() == [75, 0, 0, 0]


@pytest.mark.parametrize(
    ("window", "token"),
    [
        pytest.param(None, 1 + 12 + 123 + 1234 + 12345, id="the whole prefix"),
        pytest.param(2, 1234 + 12345, id="two tokens"),
        pytest.param(4, 12 + 123 + 1234 + 12345, id="four tokens"),
        pytest.param(9, 1 + 12 + 123 + 1234 + 12345, id="a window longer than the prefix"),
    ],
)
def test_the_next_token_follows_from_all_tags_that_the_last_position_reads(window, token):
    device = Device(window=window)

    sampled = device.run([ForwardEntry(1, 0, [1, 2, 3, 4, 5], 0, 5, samples=True)], [3, 2], [PageSpan(0, 0, 2)])

    assert sampled == [token]


def test_an_entry_that_does_not_sample_gets_no_token():
    sampled = Device().run([ForwardEntry(1, 0, [1, 2], 0, 2, samples=False)], [3], [PageSpan(0, 0, 1)])

    assert sampled == [None]


def test_each_entry_reads_its_own_pages():
    device = Device()
    entries = [ForwardEntry(1, 0, [1, 2], 0, 2, samples=True), ForwardEntry(2, 0, [3], 0, 1, samples=True)]

    assert device.run(entries, [5, 4], [PageSpan(0, 0, 1), PageSpan(0, 1, 1)]) == [1 + 12, 3]


def test_the_pools_are_summed_apart():
    device = Device()
    entry = ForwardEntry(1, 0, [1, 2, 3], 0, 3, samples=True)
    pools = [
        PoolPages("full", None, device.kv, torch.tensor([1]), [PageSpan(0, 0, 1)]),
        PoolPages("swa", 2, torch.zeros_like(device.kv), torch.tensor([1]), [PageSpan(0, 0, 1)]),
    ]

    device.forward.launch(ForwardBatch(2, PAGE, [entry], pools))

    assert device.forward.collect(2) == [(1 + 12 + 123) + (12 + 123)]


def test_what_is_written_and_read_is_noted():
    device = Device(window=3)
    device.kv[3] = torch.tensor([1, 12, 123, 1234])

    device.run([ForwardEntry(1, 0, [5, 6], 4, 6, samples=True)], [3, 2], [PageSpan(0, 0, 2)])

    assert [(*noted[:4], list(noted[-1])) for noted in device.noted] == [
        (1, 1, "pool", 4, [2]),
        (1, 1, "pool", 2, [123, 1234, 12345, 123456]),
    ]


def test_without_a_listener_nothing_is_noted():
    device = Device()
    device.forward = FakeForward(Letters())

    device.run([ForwardEntry(1, 0, [1], 0, 1, samples=True)], [3], [PageSpan(0, 0, 1)])

    assert device.noted == []


def passed(device: Device, launch: int, entry: ForwardEntry, pages: list[int]) -> None:
    """Launch a pass of one entry whose pages begin at position 0."""
    pool = PoolPages("pool", device.window, device.kv, torch.tensor(pages), [PageSpan(0, 0, len(pages))])
    device.forward.launch(ForwardBatch(launch, PAGE, [entry], [pool]))


FIRST = ForwardEntry(1, 0, [1, 2], 0, 2, samples=True)
NEXT = ForwardEntry(1, 0, [], 2, 3, samples=True, follows=1)


def test_a_pass_runs_when_it_is_collected():
    device = Device()
    passed(device, 1, FIRST, [3])
    before = device.kv[3].tolist()

    device.forward.collect(1)

    assert (before, device.kv[3].tolist()) == ([0, 0, 0, 0], [1, 12, 0, 0])


def test_a_pass_sees_what_was_written_since_its_launch():
    device = Device()
    passed(device, 1, ForwardEntry(1, 0, [5], 1, 2, samples=True), [3])
    device.kv[3, 0] = 7

    device.forward.collect(1)

    assert device.kv[3].tolist() == [7, 75, 0, 0]


def test_an_entry_that_follows_computes_the_token_that_the_pass_before_it_sampled():
    device = Device()
    passed(device, 1, FIRST, [3])
    passed(device, 2, NEXT, [3])
    tokens = device.forward.collect(1)

    device.forward.collect(2)

    assert (tokens, device.kv[3].tolist()) == ([13], [1, 12, 120 + 13, 0])


def test_a_late_pass_is_not_done_and_nothing_of_it_is_written():
    device = Device()
    device.plan.arm("forward.late")
    passed(device, 1, FIRST, [3])

    first = device.forward.collect(1)
    untouched = device.kv[3].tolist()

    assert (first, untouched, device.forward.collect(1)) == (None, [0, 0, 0, 0], [13])


def test_a_pass_that_fails_leaves_rubbish():
    device = Device()
    device.plan.arm("forward.fails")
    passed(device, 1, FIRST, [3])

    with pytest.raises(ForwardFailed) as caught:
        device.forward.collect(1)

    assert (str(caught.value), device.kv[3].tolist(), device.noted) == (
        "launch 1: the device gave up",
        [RUBBISH, RUBBISH, 0, 0],
        [],
    )


def failed_before(entry: ForwardEntry, pages: list[int]) -> tuple[Device, list[int | None] | None]:
    """Request 1 fails on page 3 while another pass is in flight; what that one samples."""
    device = Device()
    device.plan.arm("forward.fails")
    passed(device, 1, FIRST, [3])
    passed(device, 2, entry, pages)
    with pytest.raises(ForwardFailed):
        device.forward.collect(1)
    return device, device.forward.collect(2)


def test_who_was_launched_on_top_of_a_failed_pass_reads_writes_and_samples_nothing():
    device, sampled = failed_before(NEXT, [3])

    assert (sampled, device.noted, device.kv[3].tolist()) == ([None], [], [RUBBISH, RUBBISH, 0, 0])


def test_another_request_that_was_launched_behind_a_failed_pass_is_computed():
    _, sampled = failed_before(ForwardEntry(2, 0, [4], 0, 1, samples=True), [5])

    assert sampled == [4]


def test_the_same_request_on_other_pages_is_computed_behind_a_failed_pass():
    """It has given back its pages in between and begun again."""
    _, sampled = failed_before(FIRST, [5])

    assert sampled == [13]


def test_a_pass_that_failed_can_be_launched_again():
    device, _ = failed_before(NEXT, [3])
    passed(device, 3, FIRST, [3])

    assert device.forward.collect(3) == [13]


def test_the_faults_are_those_of_the_docstring():
    assert list(faults_of(FakeForward)) == ["forward.fails", "forward.late"]
