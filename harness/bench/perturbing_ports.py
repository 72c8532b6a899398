"""Ports that change one bit on the way, and one that knows when a slot is read."""

from collections.abc import Sequence
from random import Random

import torch

from engine_under_test.host.copier import HostCopier
from engine_under_test.messages import Message, PageData
from engine_under_test.ports import Forward, ForwardBatch, Link, PageCopy
from engine_under_test.units import lookback


def flip_bit(content: torch.Tensor, dim: int, index: int, chance: Random) -> None:
    """Flip one bit of a tensor, at `index` of dimension `dim`."""
    part = content.select(dim, index)
    changed = part.reshape(-1).clone()
    changed.view(torch.uint8)[chance.randrange(changed.nbytes)] ^= 1 << chance.randrange(8)
    part.copy_(changed.view(part.shape))


class FlippingStore(HostCopier):
    """Flips a bit of the next copy once it is `armed`, before it is acknowledged; `flipped`: the copy and an index."""

    def __init__(self) -> None:
        super().__init__()
        self.armed: Random | None = None
        self.flipped: tuple[PageCopy, int] | None = None

    def begin(self, job: int, copies: Sequence[PageCopy]) -> None:
        super().begin(job, copies)
        if self.armed is not None and copies:
            copy = self.armed.choice(copies)
            index = self.armed.randrange(len(copy.target_pages))
            flip_bit(copy.target, copy.page_dim, copy.target_pages[index], self.armed)
            self.flipped, self.armed = (copy, index), None


class FlippingLink:
    """Flips a bit of the next page data once it is `armed`; `flipped`: its message and the index of the page."""

    def __init__(self, steady: Link) -> None:
        self.armed: Random | None = None
        self.page_dim = 0
        self.flipped: tuple[PageData, int] | None = None
        self.receive = steady.receive
        self.reject = steady.reject
        self._steady = steady

    def send(self, message: Message) -> None:
        if isinstance(message, PageData) and self.armed is not None:
            index, content = self.armed.randrange(message.num_pages), message.pages.clone()
            flip_bit(content, self.page_dim, index, self.armed)
            message, self.armed = message._replace(pages=content), None
            self.flipped = message, index
        self._steady.send(message)

    @property
    def is_clear(self) -> bool:
        return self._steady.is_clear

    @property
    def lag_ms(self) -> int:
        return self._steady.lag_ms


class ReadWatch:
    """Wraps a forward; `is_read` tells whether a pass has read the `watched` slot of a pool."""

    def __init__(self, steady: Forward) -> None:
        self.watched: tuple[str, int] | None = None
        self.is_read = False
        self._steady = steady
        self.collect = steady.collect
        self.layout = steady.layout

    @property
    def model(self) -> str:
        return self._steady.model

    @property
    def vocab_size(self) -> None:
        return None

    def launch(self, batch: ForwardBatch) -> None:
        for pool in batch.pools:
            for entry, span in zip(batch.entries, pool.spans, strict=True):
                first = 0 if pool.window is None else max(0, entry.start - lookback(pool.window))
                for position in range(first, entry.start):
                    page, offset = divmod(position - span.first_position, batch.page_size)
                    slot = int(pool.pages[span.begin + page]) * batch.page_size + offset
                    self.is_read = self.is_read or (pool.name, slot) == self.watched
        self._steady.launch(batch)
