"""A KV connector whose store outside of the engine has the first tokens of every prompt, and the loads from it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from swarden.harness.engines.vllm import block_copies, offloading, tiers
from swarden.harness.engines.vllm.boot import VllmRelease
from swarden.harness.engines.vllm.config import BOTH, CHUNKS, DECODE, LAZY, LEASE_S, PREFILL, VllmConfig
from swarden.harness.engines.vllm.loads import LateLoads
from swarden.harness.engines.vllm.passes import BlockLoad, BlockSave

NAME, NIXL, PUSH, MULTI = "SwardenStore", "NixlConnector", "NixlPushConnector", "MultiConnector"
KV_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
FAILURES = {True: "recompute", False: "fail"}  # kv_load_failure_policy


class Store:
    """The connector, as a mixin for the release's base class.

    Alone it is the scheduler's side: the runner reads the metadata.  Below a MultiConnector it is the worker's side,
    too, with the loads in the background as its `worker`.

    It has whole blocks, up to `external_len` tokens of the prompt.  In the background it loads a prompt that is not
    longer with its last block, as the release's NixlConnector does; the release then computes the last token again.
    Not with states: that behind the last token is not the one before it.

    If it `saves`, it gets the KV of each request that has ended, in the background: its blocks are freed after that,
    and later loads of this prefix have the KV that was saved.  Nothing is read of a request that no pass has had since
    it was admitted: a load, also one of another connector, may be under way.
    """

    worker: LateLoads

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)  # type: ignore[call-arg]  # of the release's class
        extra: Mapping[str, Any] = vllm_config.kv_transfer_config.kv_connector_extra_config
        self._extra, self._loads_whole = extra, extra["is_late"] and not extra["has_states"]
        self._starts: dict[str, int] = {}
        self._loads: list[BlockLoad] = []
        self._saves: list[BlockSave] = []
        self._scheduled = set[str]()  # the requests that a pass has computed since they were admitted

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        known, length, size = request.num_prompt_tokens, self._extra["len"], self._extra["block_size"]
        whole = min(length, known - 1) // size * size
        most = known if self._loads_whole and 1 < known <= length else whole
        count = max(0, most - num_computed_tokens)
        self._starts[request.request_id] = num_computed_tokens
        self._scheduled.discard(request.request_id)
        return count, self._extra["is_late"] and count > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens > 0:
            start = self._starts[request.request_id]
            end = start + num_external_tokens
            tokens = list(request.prompt_token_ids[:end])
            tables = [list(group) for group in blocks.get_block_ids()]
            self._loads.append(BlockLoad(request.request_id, start, end, tokens, tables, self._extra["is_late"]))

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        self._scheduled.update(scheduler_output.num_scheduled_tokens)
        loads, self._loads = self._loads, []
        saves, self._saves = self._saves, []
        return LoadMetadata(loads, saves)

    def request_finished_all_groups(self, request: Any, block_ids: Sequence[Sequence[int]]) -> tuple[bool, None]:
        rid = request.request_id
        is_saved = self._extra["saves"] and any(block_ids)
        if is_saved:
            computed = request.num_computed_tokens - request.num_output_placeholders if rid in self._scheduled else 0
            self._saves.append(BlockSave(rid, list(request.all_token_ids[:computed]), [*map(list, block_ids)]))
        return is_saved, None

    def reset_cache(self) -> bool:
        return True

    def start_load_kv(self, *args: Any, **kwargs: Any) -> None:
        metadata = self._get_connector_metadata()  # type: ignore[attr-defined]  # of the release's class
        for load in metadata.loads:
            self.worker.begin(load)
        self.worker.save(metadata.saves)

    def get_finished(self, finished_req_ids: Collection[str]) -> tuple[Collection[str], Collection[str]]:
        self._ended = self.worker.end_pass()
        return self._ended.sent, self._ended.requests

    def get_transfer_results(self, finished_req_ids: Collection[str]) -> Any:
        results = super().get_transfer_results(finished_req_ids)  # type: ignore[misc]  # of the release's class
        results.failed_recving.update(self._ended.failed)
        return results

    def get_block_ids_with_load_errors(self) -> Collection[int]:
        return self._ended.unwritten

    def wait_for_save(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is saved."""

    wait_for_layer_load = save_kv_layer = wait_for_save


class LoadMetadata(NamedTuple):
    """The metadata for the worker: the loads and the saves that begin with a pass."""

    loads: Sequence[BlockLoad]
    saves: Sequence[BlockSave]


def transfer_config(release: VllmRelease, config: VllmConfig) -> Any:
    """The setting of the connector, which the release builds; None without one."""
    if config.role != BOTH:
        return release.make(
            "KVTransferConfig",
            kv_connector=PUSH if config.push else NIXL,
            kv_role="kv_both" if config.has_both_roles else KV_ROLES[config.role],
            engine_id=config.role,
            kv_load_failure_policy=FAILURES[config.recomputes_loads],
            kv_connector_extra_config={"kv_lease_duration": LEASE_S},
        )
    settings: dict[str, Mapping[str, Any]] = {}
    if config.cpu_chunks:
        disk = tiers.prepare(release) if config.has_disk else {}
        simple = {"lazy_offload": config.offloader == LAZY}
        name, more = (offloading.NAME, disk) if config.offloader == CHUNKS else (block_copies.NAME, simple)
        settings[name] = {**offloading.settings(config), **more}
    if config.external_len:
        kind = type(NAME, (Store, release.code("KVConnectorBase"), release.code("SupportsHMA")), {})
        release.code("KVConnectorFactory")._registry[NAME] = lambda: kind
        settings[NAME] = {
            "len": config.external_len,
            "block_size": config.largest_block_size,
            "is_late": config.late_loads,
            "has_states": config.state_groups > 0,
            "saves": config.saves,
        }
    if not settings:
        return None
    if len(settings) > 1:
        children = [
            {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}
            for name, extra in settings.items()
        ]
        settings = {MULTI: {"connectors": children}}
    [(name, extra)] = settings.items()
    return release.make(
        "KVTransferConfig",
        kv_connector=name,
        kv_role="kv_both",
        engine_id=name,
        kv_load_failure_policy=FAILURES[config.recomputes_loads],
        kv_connector_extra_config=extra,
    )
