"""Tiny models with random weights, as Hugging Face writes them: their layers are those of a configuration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.engines.vllm.config import VllmConfig
from swarden.harness.engines.vllm.layers import NONE
from swarden.harness.engines.vllm.parts import drafts, states
from swarden.harness.engines.vllm.parts.grammars import Grammars
from swarden.harness.engines.vllm.parts.offload import Offload
from swarden.harness.engines.vllm.parts.pair import Pairing
from swarden.harness.engines.vllm.parts.store import Storing
from swarden.harness.kit.checkpoints import MAX_CONTEXT_LEN, SIZES, written
from swarden.harness.kit.part import off
from swarden.harness.kit.settings import flat

GEMMA, GPT_OSS, GRANITE, LFM2 = "tiny-gemma3", "tiny-gpt-oss", "tiny-granite4", "tiny-lfm2"
BLOCK_MULTIPLE = 32  # the kernels of the CPU want blocks of a multiple of so many tokens
REPEATS = 2  # layers of each kind: the KV of the first layer shows a token, that of later ones also its prefix
STATE = 0  # in place of a window: the layer has a recurrent state


class Family(NamedTuple):
    """Models of one class: its configuration in transformers, and its names of full attention and of the other layers.

    `wants` has the values that a setting can have, beside those of all models; `arguments` those of vLLM's EngineArgs.
    """

    config: str
    full: str
    other: str
    settings: Mapping[str, Any]
    wants: Mapping[str, Sequence[Any]]
    arguments: Mapping[str, Any] = {}


# Settings whose passes no tiny model runs, each with the value that it can have.
ALL_WANT: Mapping[str, Sequence[Any]] = {
    "asynchronous": (False,),
    "second_runner": (False,),
    **off(Storing, Offload),
    "window_block_sizes": ((),),
    **off(Pairing, Grammars),
}
ATTENTION: Mapping[str, Sequence[Any]] = off(states.States) | drafts.NO_EAGLE
RECURRENT: Mapping[str, Sequence[Any]] = {"windows": ((),), **(states.SOME_GROUPS | drafts.NO_EAGLE)}
MODELS: Mapping[str, Family] = {
    GEMMA: Family(
        "Gemma3TextConfig",
        *("full_attention", "sliding_attention"),
        {"tie_word_embeddings": False, "query_pre_attn_scalar": SIZES["head_dim"]},
        ATTENTION,
    ),
    GPT_OSS: Family(
        "GptOssConfig",
        *("full_attention", "sliding_attention"),
        {"num_local_experts": 4, "num_experts_per_tok": 2},
        {**ATTENTION, "windows_first": (True,)},
    ),
    LFM2: Family(
        "Lfm2Config",
        *("full_attention", "conv"),
        {"num_attention_heads": 2, "conv_dim": 64, "block_dim": 64, "block_auto_adjust_ff_dim": False},
        RECURRENT,
        # The kernel of the CPU takes the heads of a token for tokens, so it turns them by wrong positions.
        {"compilation_config": {"custom_ops": ["all", "-rotary_embedding"]}},
    ),
    GRANITE: Family(
        "GraniteMoeHybridConfig",
        *("attention", "mamba"),
        {
            "num_attention_heads": 2,
            "num_local_experts": 0,
            "shared_intermediate_size": 64,
            "mamba_n_heads": 4,
            "mamba_d_head": 32,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
            "mamba_chunk_size": MAX_CONTEXT_LEN,  # so that a prompt has one chunk
            "position_embedding_type": "rope",
            "tie_word_embeddings": False,
        },
        RECURRENT,
    ),
}
LENS = ("max_context_len", "chunk_len")
MOST = {"num_blocks": 511, "max_running_requests": 16, **dict.fromkeys(LENS, MAX_CONTEXT_LEN)}
OF_WORKER = {  # the arguments with which a worker is made for them
    "num_gpu_blocks_override": MOST["num_blocks"] + 1,
    "max_num_seqs": MOST["max_running_requests"],
    **dict.fromkeys(("max_model_len", "max_num_batched_tokens"), MAX_CONTEXT_LEN),
}


class Layers(NamedTuple):
    """The window of each layer in order (None: full attention; STATE), and the tokens of a block.

    `keeps_states`: those of recurrent layers are kept for a prefix cache. `num_drafts`: so many of n-grams.
    """

    windows: Sequence[int | None]
    block_len: int
    keeps_states: bool = False
    num_drafts: int = 0


def unsuited(config: VllmConfig, model: str) -> dict[str, Sequence[Any]]:
    """The settings of a configuration that a model cannot have, each with the values that it can have."""
    settings, wants = flat(config), {**ALL_WANT, **MODELS[model].wants}
    return {name: wanted for name, wanted in wants.items() if settings[name] not in wanted}


def layers_of(config: VllmConfig, model: str) -> Layers:
    """The layers for the groups of a configuration; raises InvalidConfig if no tiny model has them."""
    for name, wanted in unsuited(config, model).items():
        value = flat(config)[name]
        raise InvalidConfig(f"{name} is {value!r}, want {' or '.join(map(repr, wanted))} with model {model}")
    if model == GPT_OSS and len(config.windows) != 1:
        raise InvalidConfig(f"windows is {list(config.windows)}, want one with model {model}")
    if len(set(config.windows)) > 1:
        raise InvalidConfig(f"windows is {list(config.windows)}, want equal windows with a model")
    for name, most in MOST.items():
        if (value := flat(config)[name]) > most:
            raise InvalidConfig(f"{name} is {value}, want at most {most} with a model")
    windows = [STATE if group.has_states else group.window for group in config.groups] * REPEATS
    return Layers(tuple(windows), config.largest_block_len, config.state_mode != NONE, config.drafts.count)


def write(model: str, layers: Layers, folder: Path) -> Any:
    """Write the checkpoint of a model; returns it as transformers has it."""
    family = MODELS[model]
    kinds = [family.full if window is None else family.other for window in layers.windows]
    of_layers: dict[str, Any] = {"layer_types": kinds, "num_hidden_layers": len(kinds)}
    if "windows" not in family.wants:
        of_layers["sliding_window"] = next(filter(None, layers.windows), MAX_CONTEXT_LEN)
    return written(family.config, {**family.settings, **of_layers}, folder)
