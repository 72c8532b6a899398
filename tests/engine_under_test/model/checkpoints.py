"""Checkpoints with random weights that transformers itself writes, and what it makes of them."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from engine_under_test.model.tiny import tiny_config

logging.disable_progress_bar()

CPU = torch.device("cpu")
DEVIATION = 0.15  # transformers' own 0.02 hardly lets tokens that are far away show in the logits


def oracle(family: str, **changes: Any) -> Any:
    """transformers' model of a tiny config, its weights random and the same each time."""
    values = tiny_config(family, **changes)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * DEVIATION
            parameter.copy_(drawn + parameter if "norm" in name else drawn)
    return model


def write_checkpoint(directory: Path, family: str, **changes: Any) -> Any:
    """Write the oracle's checkpoint, and return the oracle."""
    model = oracle(family, **changes)
    model.save_pretrained(directory)
    return model


def some_tokens(count: int, seed: int = 0) -> torch.Tensor:
    """(count,) int64, none of them a special token of the tiny configs."""
    return torch.randint(3, 128, (count,), generator=torch.Generator().manual_seed(seed))


@torch.inference_mode()
def oracle_logits(model: Any, token_ids: torch.Tensor) -> torch.Tensor:
    """(n, vocab_size), one forward pass without a cache."""
    logits: torch.Tensor = model(token_ids[None], use_cache=False).logits[0]
    return logits
