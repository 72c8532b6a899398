"""The KV in memory, compared by tag: each slot that a pass reads has what was first computed for the same tokens.

Of a recurrent layer, the state that a pass leaves is compared.
"""

from array import array
from collections.abc import Iterator, Sequence

from swarden.harness.engines.vllm.layers import LayerGroup
from swarden.harness.engines.vllm.passes import VllmEntry
from swarden.harness.engines.vllm_cpu.model import LayerMemory, RealModel
from swarden.harness.kit.first_kv import FirstKV, ReadKV
from swarden.harness.kit.tags import ReadTags
from swarden.invariants.events import WrongKV


class GroupKV:
    """The KV of one group of layers, in the memory of the model."""

    def __init__(self, model: RealModel, number: int, group: LayerGroup) -> None:
        self._model, self._number, self._group = model, number, group
        self._layers: Sequence[LayerMemory] = model.groups[number]
        self._first = FirstKV(model.torch)

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
        yield from self._first.wrong(
            ReadKV(entry.request, first, tags[first:], values),
            entry.start,
            lambda layer, row: (self._layers[layer].name, int(units[layer][row]), int(slots[layer][row])),
        )
