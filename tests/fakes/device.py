"""A device with one pool, and passes with readable tags."""

import torch

from swarden.engine_under_test.config import PoolSpec
from swarden.engine_under_test.ports import ForwardBatch, ForwardEntry, PageSpan, PoolPages
from swarden.fakes.forward import FakeForward
from swarden.fakes.unsteady import UnsteadyForward
from swarden.invariants.events import Read, Written
from swarden.kit import FaultPlan, TagModel

PAGE = 4


class DecimalTags(TagModel):
    """A model with readable tags: the namespace, then the tokens so far, as decimal digits."""

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
        self.noted: list[Read | Written] = []
        self.plan = FaultPlan(UnsteadyForward.FAULTS)
        self.forward = UnsteadyForward(FakeForward(DecimalTags(), note=self.noted.append), self.plan)
        self.forward.layout(PoolSpec("pool", 6, window))

    def run(self, entries, pages, spans) -> list[int | None] | None:
        pool = PoolPages("pool", self.window, self.kv, torch.tensor(pages), spans)
        self.forward.launch(ForwardBatch(1, PAGE, entries, [pool]))
        return self.collect(1)

    def collect(self, launch: int) -> list[int | None] | None:
        """The next token of each entry."""
        computed = self.forward.collect(launch)
        return None if computed is None else [result.tokens[-1] if result.tokens else None for result in computed]


def launch_pass(device: Device, launch: int, entry: ForwardEntry, pages: list[int]) -> None:
    """Launch a pass of one entry whose pages begin at position 0."""
    pool = PoolPages("pool", device.window, device.kv, torch.tensor(pages), [PageSpan(0, 0, len(pages))])
    device.forward.launch(ForwardBatch(launch, PAGE, [entry], [pool]))


FIRST = ForwardEntry(1, 0, [1, 2], 0, 2, num_samples=1)
NEXT = ForwardEntry(1, 0, [], 2, 3, num_samples=1, follows=1)
