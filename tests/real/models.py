"""Tiny models with random weights from a seed, as Hugging Face writes them; run with the Python of a real engine.

    python models.py gemma3|gpt_oss FOLDER

The layers alternate as those of the real models: five with a window before each one of full attention, or one.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOCABULARY = 256  # each token is a character, so that a text has as many tokens as characters
WINDOW = 40  # ends inside a block of 32
MAX_LEN = 1024
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "sliding_window": WINDOW,
    "max_position_embeddings": MAX_LEN,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
SLIDING, FULL = "sliding_attention", "full_attention"


def write(name: str, folder: Path) -> None:
    """Write a model: its configuration, its weights and its tokenizer."""
    import torch  # noqa: PLC0415  # of the engine's environment, where this runs
    import transformers  # noqa: PLC0415

    if name == "gemma3":
        layers = [*[SLIDING] * 5, FULL] * 2
        config: Any = transformers.Gemma3TextConfig(**SIZES, layer_types=layers, num_hidden_layers=len(layers))
    else:
        layers = [SLIDING, FULL] * 2
        experts: Mapping[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
        config = transformers.GptOssConfig(**SIZES, **experts, layer_types=layers, num_hidden_layers=len(layers))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
    model.save_pretrained(folder)
    _write_tokenizer(folder)


def _write_tokenizer(folder: Path) -> None:
    import tokenizers  # noqa: PLC0415

    names = ["<pad>", "<bos>", "<eos>"]
    names += [chr(0x4E00 + token) for token in range(len(names), VOCABULARY)]
    vocabulary = {name: token for token, name in enumerate(names)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=names[0]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    tokenizer.decoder = tokenizers.decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": names[1], "eos_token": names[2]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
