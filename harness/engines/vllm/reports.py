"""The events of a pass."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import swarden.invariants.events as seen
from swarden.harness.engines.vllm.layers import POOL
from swarden.harness.engines.vllm.passes import VllmPass
from swarden.harness.engines.vllm.requests import VllmRequests
from swarden.harness.engines.vllm.runner import Runner


def launched(flight: VllmPass, runner: Runner) -> Iterator[NamedTuple]:
    """The admissions, the launch, and what the pass is going to write."""
    device = runner.device
    for entry in flight.entries:
        if entry.request in flight.admitted:
            yield seen.Admitted(entry.request, entry.start, entry.end, (), ())
    yield flight.launched()
    for entry in flight.entries:
        request, start, end, tables, drafts, _ = entry
        if drafts:
            yield seen.Proposed(flight.launch, request, drafts)
        new = start + device.repeated_len(flight, entry) if runner.loads.writes_blocks else start
        for component, (table, group) in enumerate(zip(tables, runner.groups, strict=True)):
            if group.has_states:
                pages = device.states.blocks(entry, component)
                yield seen.Written(flight.launch, request, POOL, start, end, pages, component)
            elif new < end:
                pages = tuple(filter(None, table[new // group.block_len : -(-end // group.block_len)]))
                yield seen.Written(flight.launch, request, POOL, new, end, pages, component)


def completed(flight: VllmPass, requests: VllmRequests) -> Iterator[NamedTuple]:
    """The end of the pass, and the results that are not used."""
    return flight.completed(partial(requests.counts, flight))
