"""The second level: a model of tags in place of KV, so that what each pass reads and samples is checked."""

from collections.abc import Sequence
from typing import NamedTuple

from swarden import kit
from swarden.kit import events
from tests.examples.cacheserve.engine import BlockPool, Entry
from tests.examples.cacheserve.pools import BLOCKS, CODE, CacheConfig, PoolsPort, PoolsTarget


class TagEntry(NamedTuple):
    """An entry as the kit's passes know it."""

    entry: Entry
    ids: tuple[int, int, int]
    drafts: Sequence[int] = ()


class TaggedModel:
    """Computes a pass when its results are asked for, the last moment at which a GPU may do so."""

    def __init__(self, config: CacheConfig, log: kit.EventLog) -> None:
        self.passes = kit.Passes[TagEntry]()
        self._memory = kit.TagMemory(config.num_blocks, config.block_size)
        self._block_size, self._log = config.block_size, log

    def launch(self, entries: Sequence[Entry]) -> None:
        one = self.passes.launch([TagEntry(entry, (entry.request.id, entry.start, entry.end)) for entry in entries])
        self._log.notice(one.launched())

    def results(self) -> Sequence[int]:
        one = self.passes.in_flight[0]
        tokens = [self._computed(one, tagged.entry) for tagged in one.entries]
        for event in self.passes.complete(one).completed(is_used):
            self._log.notice(event)
        return tokens

    def _computed(self, one: kit.Pass[TagEntry], entry: Entry) -> int:
        """Write the tags of the new tokens, read those of all, and sample; the reads are reported with the results."""
        request, start, end, blocks = entry
        size = self._block_size
        slots = kit.slots_of(blocks, 0, end, page_size=size, unit_size=size)
        before = self._memory.read(slots[start - 1 : start])[0] if start else kit.TagModel().namespace_tag(request.salt)
        self._memory.write(slots[start:], kit.chain(before, request.tokens[start:end]))
        tags = self._memory.read(slots)
        written = tuple(blocks[start // size : -(-end // size)])
        if request.finish_reason is None:  # else the blocks are no longer its own
            one.reports.append(events.Written(one.launch, request.id, BLOCKS, start, end, written))
        one.reports.append(events.Read(one.launch, request.id, BLOCKS, 0, tags))
        return kit.token_after([kit.ReadTags(None, 0, tags)], end)


def is_used(tagged: TagEntry) -> bool:
    """Whether the request of an entry still runs."""
    return tagged.entry.request.finish_reason is None


class ContentPort(PoolsPort):
    reported = PoolsPort.reported | {"Launched", "Completed", "Discarded", "Read", "Written"}

    def __init__(self, config: CacheConfig, pool: BlockPool, log: kit.EventLog) -> None:
        self.model = TaggedModel(config, log)
        super().__init__(config, pool, self.model, log)

    def reference(self) -> kit.Reference:
        return kit.Reference(kit.VOCABULARY, windows=(None,))


class ContentTarget(PoolsTarget):
    name = "cacheserve-content"

    def build(self, config: CacheConfig) -> PoolsPort:
        return ContentPort(config, BlockPool(config.num_blocks), kit.EventLog(code=CODE))
