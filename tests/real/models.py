"""The tiny models with layers as those of the real ones, and a tokenizer, so that a server can load them.

python models.py tiny-gemma3|tiny-gpt-oss|tiny-laguna|tiny-llama FOLDER
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from swarden.harness.engines.sglang import worker_model
from swarden.harness.engines.sglang.worker_model import LAGUNA
from swarden.harness.engines.vllm_cpu.checkpoint import BLOCK_MULTIPLE, GEMMA, GPT_OSS, Layers, write
from swarden.harness.kit.checkpoints import VOCABULARY, written

LLAMA = "tiny-llama"  # full attention alone
BLOCK = BLOCK_MULTIPLE
WINDOW = 40  # ends inside a block
WINDOWS: Mapping[str, Sequence[int | None]] = {  # five layers with a window before each one of full attention, or one
    GEMMA: [*[WINDOW] * 5, None] * 2,
    GPT_OSS: [WINDOW, None] * 2,
}


def write_with_tokenizer(model: str, folder: Path) -> None:
    """Write a model; each of its tokens is a character, so that a text has as many tokens as characters."""
    import tokenizers  # noqa: PLC0415  # of the engine's packages, with which this runs

    if model == LAGUNA:
        worker_model.write(WINDOW, folder)
    elif model == LLAMA:
        written("LlamaConfig", {"num_hidden_layers": 2}, folder)
    else:
        write(model, Layers(WINDOWS[model], BLOCK), folder)
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
    write_with_tokenizer(sys.argv[1], Path(sys.argv[2]))
