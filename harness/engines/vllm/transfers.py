"""The transfers of a connector, as its two sides and the programs of findings know them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from swarden.harness.engines.vllm.layers import LayerGroup


class BlockLoad(NamedTuple):
    """KV of positions [start, end) of a request, to be written to the blocks of each group.

    `tokens` are those of [0, end).  A load in the background `is_late`.
    """

    rid: str
    start: int
    end: int
    tokens: Sequence[int]
    tables: Sequence[Sequence[int]]
    is_late: bool

    def targets(self, groups: Sequence[LayerGroup]) -> list[int]:
        """The blocks that it writes, in all groups; of states only the last one."""
        firsts = [self.end - 1 if group.has_states else self.start for group in groups]
        blocks = [
            table[first // group.block_len : -(-self.end // group.block_len)]
            for group, table, first in zip(groups, self.tables, firsts, strict=True)
        ]
        return [block for of_group in blocks for block in of_group if block]


class BlockSave(NamedTuple):
    """KV of the first `tokens` of a request that has ended, to be read from the blocks of each group."""

    rid: str
    tokens: Sequence[int]
    tables: Sequence[Sequence[int]]


class OffloadedBlock(NamedTuple):
    """A block of the device, and its place in CPU memory: a chunk, and the number of the block there."""

    block: int
    chunk: int
    number: int


def offloaded_blocks(of_device: Any, of_host: Any, blocks_per_chunk: int) -> list[OffloadedBlock]:
    """The blocks of a copy, from the specifications that an OffloadingWorker gets."""
    places, chunks, blocks = [], of_host.block_ids.tolist(), iter(of_device.block_ids.tolist())
    for count, first in zip(of_device.group_sizes, of_device.block_indices, strict=True):
        skipped = first % blocks_per_chunk
        for number in range(skipped, skipped + count):
            chunk = chunks[number // blocks_per_chunk]
            places.append(OffloadedBlock(next(blocks), chunk, number % blocks_per_chunk))
        chunks = chunks[-(-(skipped + count) // blocks_per_chunk) if count else 0 :]
    return places


def begin_copies(connector: Any, output: Any, launch: Callable[[], None]) -> None:
    """As the model runner calls the worker's side of a connector, before and after it launches the forward pass."""
    connector.handle_preemptions(output.kv_connector_metadata)
    connector.bind_connector_metadata(output.kv_connector_metadata)
    loads_first = getattr(output, "has_sync_kv_loads", True)
    if loads_first:
        connector.start_load_kv(None)
    launch()
    if not loads_first:
        connector.start_load_kv(None)
    connector.wait_for_save()
