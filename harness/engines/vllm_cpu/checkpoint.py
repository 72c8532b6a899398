"""Tiny models with random weights, as Hugging Face writes them: their layers are those of a configuration."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.engines.vllm.config import VllmConfig

GEMMA, GPT_OSS = "tiny-gemma3", "tiny-gpt-oss"
MODELS = (GEMMA, GPT_OSS)
# Token ids of prompts differ by multiples of 64. Modulo a larger prime they still differ.
VOCABULARY = 97
MAX_CONTEXT_LEN = 1024
SEED, SPREAD = 5, 0.15  # of the weights
BLOCK_MULTIPLE = 32  # of the tokens of a block, for the kernels of the CPU
REPEATS = 2  # of each layer: the KV of the first layer shows a token, that of later ones also its prefix
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": MAX_CONTEXT_LEN,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
CLASSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {  # by model: its configuration in transformers, and settings
    GEMMA: ("Gemma3TextConfig", {"tie_word_embeddings": False, "query_pre_attn_scalar": SIZES["head_dim"]}),
    GPT_OSS: ("GptOssConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
}
MOST = {  # that the worker is made for
    "num_blocks": 511,
    "max_running_requests": 16,
    "max_context_len": MAX_CONTEXT_LEN,
    "chunk_len": MAX_CONTEXT_LEN,
}
UNSUPPORTED = (  # settings whose passes no tiny model runs, each with the value that it can have
    *(("state_groups", 0), ("draft_len", None), ("external_len", 0), ("cpu_chunks", 0)),
    *(("asynchronous", False), ("second_runner", False), ("window_block_sizes", ()), ("role", "both")),
)


class Layers(NamedTuple):
    """The window of each layer in order (None: full attention), and the tokens of a block."""

    windows: Sequence[int | None]
    block_size: int


def layers_of(config: VllmConfig, model: str) -> Layers:
    """The layers for the groups of a configuration; raises InvalidConfig if no tiny model has them."""
    for name, want in UNSUPPORTED:
        if (value := getattr(config, name)) != want:
            raise InvalidConfig(f"{name} is {value!r}, want {want!r} with model {model}")
    if model == GPT_OSS and (len(config.windows) != 1 or not config.windows_first):
        raise InvalidConfig(f"windows is {list(config.windows)}, want one, and windows_first, with model {model}")
    if len(set(config.windows)) > 1:
        raise InvalidConfig(f"windows is {list(config.windows)}, want equal windows with a model")
    for name, most in MOST.items():
        if (value := getattr(config, name)) > most:
            raise InvalidConfig(f"{name} is {value}, want at most {most} with a model")
    return Layers(tuple([group.window for group in config.groups] * REPEATS), config.block_size)


def write(model: str, layers: Layers, folder: Path) -> Any:
    """Write the checkpoint of a model; returns it as transformers has it, in float32 and with exact attention."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    name, settings = CLASSES[model]
    window = next(filter(None, layers.windows), MAX_CONTEXT_LEN)
    kinds = ["full_attention" if one is None else "sliding_attention" for one in layers.windows]
    of_layers = {"layer_types": kinds, "num_hidden_layers": len(kinds), "sliding_window": window}
    config = getattr(transformers, name)(**SIZES, **settings, **of_layers)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * SPREAD)
    made.save_pretrained(folder)
    return made.eval()
