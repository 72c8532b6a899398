"""The attributes that Scheduler.__init__ sets, as far as the event loop reads them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import SglangConfig
from swarden.harness.engines.sglang.options import max_pool_len, settings_of
from swarden.harness.engines.sglang.pools import SglangMemory
from swarden.harness.kit.part import merged
from swarden.harness.kit.stand_ins import Missing, Silent
from swarden.harness.kit.streams import Stream
from swarden.harness.kit.tags import VOCABULARY

# The names of the length in tokens of the pool that bounds a request, oldest first.
POOL_LENS = ("max_token_pool_size", "effective_max_total_num_tokens", "effective_logical_max_total_num_tokens")

ONE_RANK = {"pp_size": 1, "tp_size": 1, "dp_size": 1, "pp_rank": 0, "tp_rank": 0, "attn_tp_rank": 0, "gpu_id": 0}


def attributes(
    release: SglangRelease,
    config: SglangConfig,
    memory: SglangMemory,
    on_message: Callable[..., None],
) -> dict[str, Any]:
    sender, settings = SimpleNamespace(send_output=on_message), settings_of(release, config)
    runner = SimpleNamespace(
        prefill_aware_swa=False,
        attn_backend=Missing(),
        kv_cache_dtype_str="auto",
        swa_max_total_num_tokens=settings["swa_tokens_per_layer"],
        **dict.fromkeys(POOL_LENS, max_pool_len(release, config)),
    )
    ranks = {**ONE_RANK, **merged(one.parallel for one in config.terms)}
    return {
        "req_to_token_pool": memory.rows,
        "token_to_kv_pool_allocator": memory.allocator,
        "tree_cache": memory.tree,
        "send_to_tokenizer": sender,
        "ipc_channels": SimpleNamespace(send_to_tokenizer=sender),
        **settings,
        **_initial_state(release),
        **ranks,
        **_beside_the_scheduler(),
        "ps": SimpleNamespace(**ranks, dp_rank=0),
        "tp_worker": SimpleNamespace(is_hybrid_swa=config.has_window, model_runner=runner),
        **merged(one.attributes for one in config.terms),
    }


def _initial_state(release: SglangRelease) -> dict[str, Any]:
    return {
        "waiting_queue": [],
        "running_batch": release.code("ScheduleBatch")(reqs=[], batch_is_full=False),
        "last_batch": None,
        "cur_batch": None,
        "chunked_req": None,
        "forward_ct": 0,
        "forward_ct_decode": 0,
        "num_generated_tokens": 0,
        "processed_tokens_counter": 0,
        "_chunked_req_scheduled_last_iter": False,
        "_engine_paused": False,
        "_pause_intervals": [],
    }


def _beside_the_scheduler() -> dict[str, Any]:
    """The model, the other ranks, and the objects that inform others; none of them owns KV memory."""
    runner = Missing()
    return {
        "is_generation": True,
        "model_config": Missing(
            vocab_size=VOCABULARY,
            is_encoder_decoder=False,
            is_matryoshka=False,
            hidden_size=4,
            is_multimodal=False,
            num_hidden_layers=2,
            hf_config=Missing(),
            hf_text_config=Missing(),
            get_total_num_kv_heads=lambda: 1,
        ),
        "schedule_stream": Stream(),
        "forward_stream": Stream(),
        "_war_barrier_enabled": True,  # as with CUDA
        "model_worker": SimpleNamespace(war_fastpath_runner=runner, last_shared_read_runner=runner),
        "swarden_runner": runner,
        "dp_attn_adapter": SimpleNamespace(
            maybe_prepare_mlp_sync_batch=_same,
            maybe_convert_decode_to_extend=_same,
            maybe_prepare_mlp_sync_batch_and_log_stats=_same,
        ),
        "ngram_embedding_manager": SimpleNamespace(prepare_for_forward=_same),
        "grammar_manager": Silent(has_waiting_grammars=lambda: False, grammar_queue=[]),
        "metrics_reporter": Silent(
            enable_metrics=False,
            num_retracted_reqs=0,
            current_scheduler_metrics_enabled=False,
            is_stats_logging_rank=False,
            num_generated_tokens=0,
            forward_ct_decode=0,
            spec_total_num_forward_ct=0,
        ),
        "output_streamer": Silent(),
        "dllm_manager": Silent(),  # no diffusion: it has nothing staged
        "future_map": Silent(),  # the next input tokens, on the device
        "beam_coordinator": Silent(pending_member_rows=lambda *_args, **_options: 0),
        "load_publisher": Silent(),
        "load_inquirer": Silent(_get_num_pending_tokens=lambda *_args, **_options: 0),
        "kv_events_publisher": Silent(enable_kv_cache_events=False),
        "stats": SimpleNamespace(),
    }


def _same(batch: Any = None, *args: Any, **kwargs: Any) -> Any:
    return batch
