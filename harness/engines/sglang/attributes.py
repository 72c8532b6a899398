"""The attributes that Scheduler.__init__ sets, as far as the event loop reads them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.options import max_pool_len, settings_of
from swarden.harness.engines.sglang.pools import SglangMemory
from swarden.harness.engines.sglang.stand_ins import beside_the_scheduler
from swarden.harness.kit.part import merged
from swarden.harness.kit.stand_ins import Missing
from swarden.harness.kit.streams import Stream
from swarden.harness.kit.tags import VOCABULARY

# The names of the length in tokens of the pool that bounds a request, oldest first.
POOL_LENS = ("max_token_pool_size", "effective_max_total_num_tokens", "effective_logical_max_total_num_tokens")

ONE_RANK = {"pp_size": 1, "tp_size": 1, "dp_size": 1, "pp_rank": 0, "tp_rank": 0, "attn_tp_rank": 0, "gpu_id": 0}


def attributes(
    release: SglangRelease, config: SglangConfig, memory: SglangMemory, on_message: Callable[..., None]
) -> dict[str, Any]:
    sender, settings = SimpleNamespace(send_output=on_message), settings_of(release, config)
    runner = SimpleNamespace(
        prefill_aware_swa=False,
        attn_backend=Missing(),
        kv_cache_dtype_str="auto",
        swa_max_total_num_tokens=settings["swa_tokens_per_layer"],
        **dict.fromkeys(POOL_LENS, max_pool_len(release, config)),
    )
    beside = beside_the_scheduler(Stream, VOCABULARY)
    ranks = {**ONE_RANK, **merged(terms.parallel for terms in config.terms)}
    return {
        "req_to_token_pool": memory.rows,
        "token_to_kv_pool_allocator": memory.allocator,
        "tree_cache": memory.tree,
        "send_to_tokenizer": sender,
        "ipc_channels": SimpleNamespace(send_to_tokenizer=sender),
        **settings,
        "waiting_queue": [],
        "running_batch": release.code("ScheduleBatch")(reqs=[], batch_is_full=False),
        **dict.fromkeys(("last_batch", "cur_batch", "chunked_req")),
        **dict.fromkeys(("forward_ct", "forward_ct_decode", "num_generated_tokens", "processed_tokens_counter"), 0),
        **dict.fromkeys(("_chunked_req_scheduled_last_iter", "_engine_paused"), False),
        "_pause_intervals": [],
        **ranks,
        **beside,
        "swarden_runner": beside["model_worker"].war_fastpath_runner,
        "ps": SimpleNamespace(**ranks, dp_rank=0),
        "tp_worker": SimpleNamespace(is_hybrid_swa=config.has_window, model_runner=runner),
        **merged(terms.attributes for terms in config.terms),
    }
