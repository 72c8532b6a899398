"""Loads of KV in the background: each is written early or late, and may fail; none is ordered with the passes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from swarden.harness.core.faults import FaultPlan
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import LOAD_FAILS, LOAD_LATE, STORE_LATE
from swarden.harness.engines.vllm.front import number_of
from swarden.harness.engines.vllm.layers import LayerGroup
from swarden.harness.engines.vllm.passes import BlockLoad, BlockSave, VllmPass

PASSES, MORE_PASSES = 2, 4  # passes of the runner, empty ones too, until a load ends


class EndedLoads(NamedTuple):
    """The requests whose loads ended, and those that have been `sent` to the store.

    A release gets either the requests whose loads failed, or the blocks that these loads did not write.
    """

    requests: set[str]
    failed: set[str]
    unwritten: set[int]
    sent: set[str]


def reported(connector: Any, *args: Any) -> list[list[str]]:
    """The report of a connector's worker side: the requests that are sent, those received, those that failed.

    The release has sets of texts, whose order differs from process to process; the scheduler frees in that order.
    """
    if hasattr(connector, "get_transfer_results"):
        results = connector.get_transfer_results(*args)
        sets = results.finished_sending, results.finished_recving, results.failed_recving
    else:
        sets = *connector.get_finished(*args), ()
    return [sorted(one or (), key=number_of) for one in sets]


class LoadHooks(NamedTuple):
    """The functions that loads call: `begun` with the blocks to be written and the request, `write` to write them.

    At the end of a save `read` is called.
    """

    begun: Callable[[Iterable[int], int], None]
    write: Callable[[BlockLoad], None]
    read: Callable[[BlockSave], None]


@dataclass
class _UnderWay:
    load: BlockLoad
    passes: int
    is_written: bool
    has_failed: bool


@dataclass
class _SaveUnderWay:
    save: BlockSave
    passes: int


class LateLoads:
    """The worker's side of the store.

    Every second load is written at once, as by a transfer that overtakes passes in flight.

    `loading` has, by request, the loads whose end the scheduler has not noted yet.
    """

    def __init__(self, release: VllmRelease, faults: FaultPlan, groups: Sequence[LayerGroup], hooks: LoadHooks) -> None:
        self._release, self._faults, self._groups, self._hooks = release, faults, groups, hooks
        self._under_way: list[_UnderWay] = []
        self._begun = 0
        self._saves: list[_SaveUnderWay] = []
        self.loading: dict[int, BlockLoad] = {}

    def __bool__(self) -> bool:
        return bool(self._under_way or self._saves)

    def save(self, saves: Iterable[BlockSave]) -> None:
        """Begin to send the KV of requests that have ended to the store."""
        self._saves += [_SaveUnderWay(save, self._passes(STORE_LATE)) for save in saves]

    def received(self, flight: VllmPass, output: Any) -> None:
        """Begin the loads of an output of the scheduler; those that are not late belong to its pass."""
        self.save(getattr(output.kv_connector_metadata, "saves", ()))
        for load in getattr(output.kv_connector_metadata, "loads", ()):
            if load.is_late:
                self.begin(load)
                continue
            self._hooks.begun(load.blocks(self._groups), load.request)
            if self._fails():
                flight.failed.append(load)
            else:
                flight.loads.append(load)

    def computed(self, flight: VllmPass) -> Any:
        """A pass has been computed. Returns the connector's output for the scheduler; None if no load has ended."""
        if flight.failed:
            return self._release.make("KVConnectorOutput", invalid_block_ids=flight.unwritten)
        ended = self.end_pass()
        if not ended.requests and not ended.sent:
            return None
        return self._release.make(
            "KVConnectorOutput",
            finished_sending=sorted(ended.sent, key=number_of),
            finished_recving=sorted(ended.requests, key=number_of),
            failed_recving=sorted(ended.failed, key=number_of),
            invalid_block_ids=ended.unwritten,
        )

    def _fails(self) -> bool:
        return LOAD_FAILS in self._faults.known and self._faults.fires(LOAD_FAILS)

    def begin(self, load: BlockLoad) -> None:
        self._hooks.begun(load.blocks(self._groups), load.request)
        self._begun += 1
        self.loading[load.request] = load
        has_failed = self._fails()
        is_early = bool(self._begun % 2) and not has_failed
        if is_early:
            self._hooks.write(load)
        self._under_way.append(_UnderWay(load, self._passes(LOAD_LATE), is_early, has_failed))

    def _passes(self, fault: str) -> int:
        """The number of passes until a load or a save ends, which this fault delays."""
        return PASSES + MORE_PASSES * self._faults.fires(fault)

    def end_pass(self) -> EndedLoads:
        """Count a pass; returns the loads and the saves that have ended with it."""
        for saving in self._saves:
            saving.passes -= 1
        saved = [saving.save for saving in self._saves if saving.passes <= 0]
        self._saves = [saving for saving in self._saves if saving.passes > 0]
        for save in saved:
            self._hooks.read(save)
        sent = {save.rid for save in saved}
        ended = []
        for under_way in self._under_way:
            under_way.passes -= 1
            if under_way.passes <= 0:
                ended.append(under_way)
                if not under_way.is_written and not under_way.has_failed:
                    self._hooks.write(under_way.load)
        self._under_way = [under_way for under_way in self._under_way if under_way.passes > 0]
        failed = [under_way.load for under_way in ended if under_way.has_failed]
        rids = {under_way.load.rid for under_way in ended}
        if self._release.has("failed_requests"):
            return EndedLoads(rids, {load.rid for load in failed}, set(), sent)
        return EndedLoads(rids, set(), {block for load in failed for block in load.blocks(self._groups)}, sent)
