"""Checkpoints of tiny models with random weights, as Hugging Face writes them."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Token ids of prompts differ by multiples of 64. Modulo a larger prime they still differ.
VOCABULARY = 97
MAX_CONTEXT_LEN = 1024
SEED, SPREAD = 5, 0.15  # seed and standard deviation of the weights
SPREAD_OF_ROUTERS = 2.0  # so that no rounding changes the choice of an expert with a real share
CHUNK = 32  # tokens of a chunk in the scan of recurrent layers without a cache
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


def as_read(tokens: Iterable[int]) -> list[int]:
    """The tokens as a model reads them: modulo its vocabulary."""
    return [token % VOCABULARY for token in tokens]


def written(config: str, settings: Mapping[str, Any], folder: Path) -> Any:
    """Write the checkpoint of a model with these settings beside the sizes; `config` is its class in transformers.

    Returns the model as transformers has it, in float32 and with exact attention.
    """
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    of_model = getattr(transformers, config)(**{**SIZES, **settings})
    made = transformers.AutoModelForCausalLM.from_config(of_model, dtype=torch.float32, attn_implementation="eager")
    set_weights(torch, made)
    made.save_pretrained(folder)
    for module in made.modules():
        if hasattr(module, "chunk_size"):
            module.chunk_size = CHUNK  # shorter than the worker's: each token computes a whole chunk
    return made.eval()


def set_weights(torch: Any, model: Any) -> None:
    """Give a model random weights, the same in each call."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = SPREAD_OF_ROUTERS if ".router." in name else SPREAD
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)


def logprobs_without_cache(model: Any, prompt: Iterable[int], answer: Sequence[int]) -> Any:
    """The logarithms of the probabilities before each token of an answer, as [token, vocabulary]."""
    torch, read = importlib.import_module("torch"), as_read(prompt)
    tokens = torch.tensor([[*read, *answer[:-1]]])
    with torch.inference_mode():
        logits = model(input_ids=tokens, use_cache=False).logits[0, len(read) - 1 :]
    return logits.log_softmax(-1)
