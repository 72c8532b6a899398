"""The second level: a model of tags in place of KV, so that what each pass reads and samples is checked."""

from collections.abc import Sequence

from swarden import kit
from swarden.kit import events
from tests.examples.cacheserve.engine import Entry, Model
from tests.examples.cacheserve.pools import BLOCKS, CacheConfig, PoolsPort, PoolsTarget


class TaggedModel:
    """Computes a pass when its results are asked for, the last moment at which a GPU may do so."""

    def __init__(self, port: "ContentPort", config: CacheConfig) -> None:
        self._memory = kit.TagMemory(config.num_blocks, config.block_size)
        self._block_size, self._port = config.block_size, port

    def launch(self, entries: Sequence[Entry]) -> None:
        self._port.launch([kit.TableEntry(one.request.id, *one[1:3], 0, [one.blocks], one.request) for one in entries])

    def results(self) -> Sequence[int]:
        one = self._port.passes.in_flight[0]
        tokens = [self._computed(one, index) for index in range(len(one.entries))]
        self._port.complete(one)
        return tokens

    def _computed(self, one: kit.Pass[kit.TableEntry], index: int) -> int:
        """Write the tags of the new tokens, read those of all, and sample; the reads are reported with the results."""
        entry = one.entries[index]
        size, request, start, end = self._block_size, entry.req, entry.start, entry.end
        slots = kit.slots_of(entry.units[0], 0, end, page_size=size, unit_size=size)
        before = self._memory.read(slots[start - 1 : start])[0] if start else kit.TagModel().namespace_tag(request.salt)
        self._memory.write(slots[start:], kit.chain(before, request.tokens[start:end]))
        read = kit.ReadTags(None, 0, self._memory.read(slots))
        if self._port.is_used(entry):  # else the blocks are no longer its own
            written = self._port.units_from(0, entry.units[0], start, end)
            one.reports.append(events.Written(one.launch, request.id, BLOCKS, start, end, written))
        self._port.read(one, index, 0, read)
        return kit.token_after([read], end)


class ContentPort(PoolsPort):
    reported = PoolsPort.reported | {"Launched", "Completed", "Discarded", "Read", "Written"}
    vocabulary = kit.VOCABULARY

    def make_model(self) -> Model:
        return TaggedModel(self, self.config)

    def is_used(self, entry: kit.TableEntry) -> bool:
        return entry.req.finish_reason is None


class ContentTarget(PoolsTarget):
    name = "cacheserve-content"

    def build(self, config: CacheConfig) -> PoolsPort:
        return ContentPort(config)
