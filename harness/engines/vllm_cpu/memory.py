"""The KV in memory, compared by tag: each slot that a pass reads has what was first computed for the same tokens.

Of a recurrent layer, the state that a pass leaves is compared.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from swarden.harness.engines.vllm.layers import LayerGroup
from swarden.harness.engines.vllm.passes import VllmEntry
from swarden.harness.engines.vllm_cpu.model import LayerMemory, RealModel
from swarden.harness.kit.tags import ReadTags
from swarden.invariants.events import WrongKV

TOLERANCE = 1e-3  # the largest difference of values in float32; other prefixes differ by 0.1 and more


class FirstKV:
    """The KV of one group of layers that a run has first computed for each tag: a row in a tensor of each layer.

    That of earlier runs is not used: a run that has met a bug may have computed wrong KV.
    """

    def __init__(self, model: RealModel, number: int, group: LayerGroup) -> None:
        self._model, self._number, self._group = model, number, group
        self._layers: Sequence[LayerMemory] = model.groups[number]
        self._rows: dict[int, int] = {}
        self._kept: list[Any] = []

    def wrong(self, rid: str, entry: VllmEntry, tags: "array[int]", accepted: int) -> Iterator[WrongKV]:
        """The first wrong slot of those that a computed entry has read, if any; `tags` are those of all tokens so far.

        Its running state is that after so many `accepted` drafts.  The KV that the entry has computed first for its
        tokens is kept.
        """
        torch, (window, block_size, has_states) = self._model.torch, self._group
        first = len(tags) - 1 if has_states else ReadTags.first_of(window, entry.start)
        table = torch.from_numpy(self._model.table(rid, self._number)).long()
        if has_states:
            slots = [[min(accepted, layer.values.shape[1] - 1)] for layer in self._layers]
            units = [table[[entry.columns.first + accepted - slot]] for [slot] in slots]
        else:
            positions = torch.arange(first, len(tags))
            slots = [positions % self._layers[0].values.shape[1]] * len(self._layers)
            units = [table[positions // block_size]] * len(self._layers)
        places = zip(self._layers, units, slots, strict=True)
        values = [layer.values[of_layer, at].flatten(1) for layer, of_layer, at in places]
        rows = [self._rows.get(tag, -1) for tag in tags[first:]]
        new = [index for index in range(max(0, entry.start - first), len(rows)) if rows[index] < 0]
        if new:
            at = range(len(self._rows), len(self._rows) + len(new))
            self._keep(at, [of_layer[new] for of_layer in values])
            for index, row in zip(new, at, strict=True):
                rows[index] = self._rows[tags[first + index]] = row
        known = torch.tensor(rows)
        differences = torch.stack(
            [(of_layer - kept[known]).abs().amax(1) for of_layer, kept in zip(values, self._kept, strict=True)]
        )
        is_wrong = ~(differences <= TOLERANCE) | (known < 0)
        if is_wrong.any():
            index = int(is_wrong.any(0).nonzero()[0])
            layer = int(is_wrong[:, index].nonzero()[0])
            place = (self._layers[layer].name, int(units[layer][index]), int(slots[layer][index]))
            difference = None if rows[index] < 0 else round(float(differences[layer, index]), 6)
            yield WrongKV(entry.request, first + index, *place, difference)

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
