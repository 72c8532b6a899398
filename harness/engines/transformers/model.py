"""The stand-in for the model: its keys and values are tags, in the cache tensors of the release."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from swarden.harness.engines.transformers.config import TransformersConfig
from swarden.harness.kit.tags import SALT, VOCABULARY, ReadTags, chain_of_prompt, token_after
from swarden.invariants.reference import TAG_MASK

TAG_BYTES = 16  # bytes of the key and the value of a token
Reads = Callable[[int, int, ReadTags], None]  # the index of an entry with tokens, that of a group, what its layers read


def salt_of(layer: int, *, is_value: bool) -> int:
    """Makes the keys and values of each layer differ, so that memory of another layer shows."""
    return SALT * (2 * layer + 1 + is_value) & TAG_MASK


class TagLayers:
    """A model that writes a tag per token, layer, key and value, and samples each token from the tags that it reads.

    If the layers of a group, or keys and values, do not agree on a tag, the tag is 0.
    """

    def __init__(self, torch: Any, config: TransformersConfig, processors: Callable[[], Any], on_read: Reads) -> None:
        self._torch, self._windows, self._on_read = torch, config.windows, on_read
        self._processors = processors
        self.dtype, self.device = torch.int64, torch.device("cpu")
        self._supports_flash_attn = True
        settings: Mapping[str, Any] = {
            "layer_types": config.layer_types,
            "sliding_window": config.window if config.sliding_layers else None,
            "num_hidden_layers": config.num_layers,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 1,
            "hidden_size": 1,
            "vocab_size": VOCABULARY,
            "_attn_implementation": "flash_attention_2",  # without masks
        }
        self.config = SimpleNamespace(**settings)
        self.config.get_text_config = lambda: self.config
        self._names = list(dict.fromkeys(config.layer_types))
        self._layers = [[n for n, kind in enumerate(config.layer_types) if kind == name] for name in self._names]

    def eval(self) -> "TagLayers":
        return self

    def _get_logits_processor(self, generation_config: Any) -> Any:
        return self._processors()

    def __call__(self, *, input_ids: Any, position_ids: Any, cu_seq_lens_q: Any, cache: Any, **kwargs: Any) -> Any:
        tokens, positions, borders = input_ids[0].tolist(), position_ids[0].tolist(), cu_seq_lens_q.tolist()
        entries = [range(start, end) for start, end in pairwise(borders)]
        before = self._tags_before(entries, positions, cache, kwargs)
        tags = array("q")
        for entry, tag in zip(entries, before, strict=True):
            if entry:
                tags += chain_of_prompt(tag, tokens[entry.start : entry.stop], positions[entry.start])
        reads: list[list[ReadTags]] = [[] for _ in entries]
        with_tokens = [index for index, entry in enumerate(entries) if entry]
        for group, (name, layers) in enumerate(zip(self._names, self._layers, strict=True)):
            seen = self._pass_layers(layers, tags, cache, kwargs)
            ends = kwargs["cu_seq_lens_k"][name].tolist()
            for place, index in enumerate(with_tokens):
                end = positions[entries[index].stop - 1] + 1
                of_entry = seen[ends[index] : ends[index + 1]]
                reads[index].append(ReadTags(self._windows[group], end - len(of_entry), of_entry))
                self._on_read(place, group, reads[index][-1])
        logits = self._torch.zeros((1, len(tokens), VOCABULARY))
        for index in with_tokens:
            last = entries[index].stop - 1
            logits[0, last, token_after(reads[index], positions[last] + 1)] = 1
        return SimpleNamespace(logits=logits)

    def _tags_before(self, entries: Sequence[range], positions: Sequence[int], cache: Any, kwargs: Any) -> list[int]:
        """The tag in the cache of the token before each entry, as the first layer reads it."""
        layer = self._layers[0][0]
        allocator, salt = cache.layer_to_allocator[layer], salt_of(layer, is_value=False)
        if kwargs["block_table"] is not None:
            pages, _ = allocator.get_cache_for_block_table(layer)
            slots = [divmod(positions[entry.start] - 1, allocator.tokens_per_page) for entry in entries]
            table = kwargs["block_table"][allocator.index].tolist()
            stored_tags = [
                int(pages[row[page], offset, 0, 0]) for row, (page, offset) in zip(table, slots, strict=False)
            ]
            return [tag and tag ^ salt for tag in stored_tags]
        read = kwargs["read_index"][allocator.index]
        stored = allocator._kv_token_views[layer][0].index_select(0, read)[:, 0, 0].tolist()
        ends, stored_tags = kwargs["cu_seq_lens_k"][allocator.layer_type].tolist(), []
        for index, entry in enumerate(entries):
            place = ends[index + 1] - len(entry) - 1
            stored_tags.append(stored[place] if place >= ends[index] and place < len(stored) else 0)
        return [tag and tag ^ salt for tag in stored_tags]

    def _pass_layers(self, layers: Sequence[int], tags: "array[int]", cache: Any, kwargs: Any) -> "array[int]":
        """Write the tags to each of these layers; returns those that all of them read, of all entries."""
        torch, written, agreed = self._torch, self._torch.tensor(tags, dtype=self._torch.int64), None
        for layer in layers:
            salts = [salt_of(layer, is_value=is_value) for is_value in (False, True)]
            states = [(written ^ salt).view(1, 1, -1, 1) for salt in salts]
            arguments = dict(kwargs)
            states = list(cache.update(*states, layer, arguments))
            if kwargs["block_table"] is not None:
                states = [self._flash(arguments, name, new) for name, new in zip("kv", states, strict=True)]
            for state, salt in zip(states, salts, strict=True):
                stored = state.flatten()
                layer_tags = torch.where(stored == 0, 0, stored ^ salt)
                agreed = layer_tags if agreed is None else torch.where(agreed == layer_tags, agreed, 0)
        assert agreed is not None, "a group has a layer"
        return array("q", agreed.tolist())

    def _flash(self, arguments: Mapping[str, Any], name: str, new: Any) -> Any:
        """As flash_attn_with_kvcache: write a token of each entry by the block table, and read all up to it."""
        pages, table = arguments[f"{name}_cache"], arguments["block_table"]
        lens, values = arguments["cu_seq_lens_k"].diff().tolist(), []
        size = pages.shape[1]
        for row, (length, state) in enumerate(zip(lens, new.flatten(), strict=True)):
            places = [divmod(position, size) for position in range(length)]
            units, offsets = [int(table[row, page]) for page, _ in places], [offset for _, offset in places]
            pages[units[-1], offsets[-1], 0, 0] = state
            values.append(pages[units, offsets, 0, 0])
        return self._torch.cat(values)
