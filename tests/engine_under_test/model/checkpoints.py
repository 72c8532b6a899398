"""Checkpoints with random weights, written by transformers, and their logits in transformers."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from swarden.engine_under_test.model.tiny import tiny_config
from swarden.engine_under_test.model.weights import RANDOM_MEANS

logging.disable_progress_bar()

CPU = torch.device("cpu")
DEVIATION = 0.15  # with the 0.02 of transformers distant tokens hardly change the logits


def oracle(family: str, **changes: Any) -> Any:
    """The model of a tiny config in transformers, with deterministic random weights."""
    values = tiny_config(family, **changes)
    return _random_model(AutoConfig.for_model(values.pop("model_type"), **values))


def _random_model(config: Any) -> Any:
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * DEVIATION
            mean = parameter if "norm" in name else RANDOM_MEANS.get(name.rpartition(".")[2], 0.0)
            parameter.copy_(drawn + mean)
    return model


def write_checkpoint(directory: Path, family: str, **changes: Any) -> Any:
    """Write the checkpoint of the oracle; returns the oracle."""
    model = oracle(family, **changes)
    model.save_pretrained(directory)
    return model


def write_checkpoint_as_is(directory: Path, values: dict[str, Any]) -> Any:
    """Write a config.json of exactly these values, and random weights; returns the model of transformers."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(values), encoding="utf-8")
    model = _random_model(AutoConfig.from_pretrained(directory))
    # Tied parameters are listed once.
    save_file(
        {name: parameter.detach() for name, parameter in model.named_parameters()}, directory / "model.safetensors"
    )
    return model


def some_tokens(count: int, seed: int = 0, vocab_size: int = 128) -> torch.Tensor:
    """(count,) int64, without the special tokens of the tiny configs."""
    return torch.randint(3, vocab_size, (count,), generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
def oracle_logits(model: Any, token_ids: torch.Tensor) -> torch.Tensor:
    """(n, vocab_size), one forward pass without a cache."""
    logits: torch.Tensor = model(token_ids[None], use_cache=False).logits[0]
    return logits
