"""KV in the memory of an engine, compared by tag with that which was first computed for the same tokens."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from swarden.invariants.events import WrongKV

TOLERANCE = 1e-3  # the largest difference of values in float32; other prefixes differ by 0.1 and more
Place = Callable[[int, int], tuple[str, int, int]]  # of a layer and a row: the layer's name, the unit, the slot in it


class ReadKV(NamedTuple):
    """The tags of a request's positions from the `first` on, and of each layer the values, with a row for each tag."""

    request: int
    first: int
    tags: Sequence[int]
    values: Sequence[Any]


class FirstKV:
    """The KV of one group of layers that a run has first computed for each tag: a row in a tensor of each layer.

    That of earlier runs is not used: a run that has met a bug may have computed wrong KV.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._rows: dict[int, int] = {}
        self._kept: list[Any] = []

    def wrong(self, read: ReadKV, start: int, place: Place) -> Iterator[WrongKV]:
        """The first wrong slot of what a pass has read, if any.

        The pass has just computed the rows of the positions from `start` on: they are kept if they are the first of
        their tag.
        """
        request, first, tags, values = read
        torch = self._torch
        rows = [self._rows.get(tag, -1) for tag in tags]
        new = [index for index in range(max(0, start - first), len(rows)) if rows[index] < 0]
        if new:
            at = range(len(self._rows), len(self._rows) + len(new))
            self._keep(at, [of_layer[new] for of_layer in values])
            for index, row in zip(new, at, strict=True):
                rows[index] = self._rows[tags[index]] = row
        indices = torch.tensor(rows)
        differences = torch.stack(
            [(of_layer - stored[indices]).abs().amax(1) for of_layer, stored in zip(values, self._kept, strict=True)]
        )
        is_wrong = ~(differences <= TOLERANCE) | (indices < 0)
        if is_wrong.any():
            row = int(is_wrong.any(0).nonzero()[0])
            layer = int(is_wrong[:, row].nonzero()[0])
            difference = None if rows[row] < 0 else round(float(differences[layer, row]), 6)
            yield WrongKV(request, first + row, *place(layer, row), difference)

    def _keep(self, at: range, values: Sequence[Any]) -> None:
        """Keep the KV of each layer in these rows."""
        if not self._kept or len(self._kept[0]) < at.stop:
            length = max(1024, 2 * at.stop)
            before = self._kept or [of_layer[:0] for of_layer in values]
            self._kept = [rows.new_zeros(length, rows.shape[1]) for rows in before]
            for rows, old in zip(self._kept, before, strict=True):
                rows[: len(old)] = old
        for rows, of_layer in zip(self._kept, values, strict=True):
            rows[at.start : at.stop] = of_layer
