"""A connector whose store has the first tokens of each prompt."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, SupportsHMA

from swarden.harness.engines.vllm.transfers import BlockLoad, BlockSave


class LoadMetadata(NamedTuple):
    """The metadata for the worker: the loads and the saves that begin with a pass."""

    loads: Sequence[BlockLoad]
    saves: Sequence[BlockSave]


class PromptStore(KVConnectorBase_V1, SupportsHMA):
    """The scheduler's side; the settings are in kv_connector_extra_config.

    It has whole blocks, up to `len` tokens of the prompt.  In the background it loads a prompt that is not longer with
    its last block, as NixlConnector does; the scheduler then computes the last token again.  Not with states: that
    behind the last token is not the one before it.

    If it `saves`, it gets the KV of each request that has ended, in the background: its blocks are freed after that.
    Nothing is read of a request that no pass has had since it was admitted: a load, also one of another connector, may
    be under way.
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.extra: dict[str, Any] = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.starts: dict[str, int] = {}
        self.loads: list[BlockLoad] = []
        self.saves: list[BlockSave] = []
        self.scheduled: set[str] = set()  # the requests that a pass has computed since they were admitted

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        known, length, size = request.num_prompt_tokens, self.extra["len"], self.extra["block_len"]
        most = min(length, known - 1) // size * size
        if self.extra["is_late"] and not self.extra["has_states"] and 1 < known <= length:
            most = known
        self.starts[request.request_id] = num_computed_tokens
        self.scheduled.discard(request.request_id)
        return max(0, most - num_computed_tokens), self.extra["is_late"] and most > num_computed_tokens

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens > 0:
            start = self.starts[request.request_id]
            end = start + num_external_tokens
            tokens = list(request.prompt_token_ids[:end])
            tables = [list(group) for group in blocks.get_block_ids()]
            self.loads.append(BlockLoad(request.request_id, start, end, tokens, tables, self.extra["is_late"]))

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        self.scheduled.update(scheduler_output.num_scheduled_tokens)
        begun = LoadMetadata(self.loads, self.saves)
        self.loads, self.saves = [], []
        return begun

    def request_finished_all_groups(self, request: Any, block_ids: Sequence[Sequence[int]]) -> tuple[bool, None]:
        is_saved = self.extra["saves"] and any(block_ids)
        if is_saved:
            computed = request.num_computed_tokens - request.num_output_placeholders
            tokens = list(request.all_token_ids[: computed if request.request_id in self.scheduled else 0])
            self.saves.append(BlockSave(request.request_id, tokens, [*map(list, block_ids)]))
        return is_saved, None

    def reset_cache(self) -> bool:
        return True

    def start_load_kv(self, *args: Any, **kwargs: Any) -> None: ...

    wait_for_layer_load = save_kv_layer = wait_for_save = start_load_kv
