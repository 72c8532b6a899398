"""Reads a checkpoint directory of Hugging Face: config.json, and safetensors in one file or in shards."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine_under_test.errors import CheckpointError
from engine_under_test.model.config_file import ConfigFile
from engine_under_test.model.decoder import Decoder
from engine_under_test.model.families import spec_of
from engine_under_test.model.spec import ModelSpec
from engine_under_test.model.weights import EMBEDDING, HEAD, tensor_shapes
from engine_under_test.pools.kv_store import bytes_of

CONFIG = "config.json"
GENERATION = "generation_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
REMEDY = "download the checkpoint again"


def read_spec(directory: Path) -> ModelSpec:
    """The spec of the directory's config.json; generation_config.json, where there is one, has the end tokens.

    Raises CheckpointError.
    """
    if not directory.is_dir():
        raise CheckpointError(f"{directory}: no such directory; want one with {CONFIG} and {WEIGHTS}")
    spec = spec_of(_read_json(directory / CONFIG), str(directory / CONFIG))
    generation = directory / GENERATION
    if not generation.is_file():
        return spec
    ends = ConfigFile(_read_json(generation), str(generation)).token_ids("eos_token_id")
    return replace(spec, eos_token_ids=ends)


def load_decoder(directory: Path, *, dtype: torch.dtype, device: torch.device) -> Decoder:
    """The checkpoint's decoder, its weights converted to `dtype` and held on `device`; raises CheckpointError."""
    if dtype not in DTYPES:
        raise CheckpointError(f"{directory}: dtype {dtype} is not supported; want one of {', '.join(map(str, DTYPES))}")
    spec = read_spec(directory)
    wanted = tensor_shapes(spec)
    tensors: dict[str, torch.Tensor] = {}
    tied_heads: list[torch.Tensor] = []  # stored copies of the embedding
    for path, names in _files(directory).items():
        for name, tensor in _read_tensors(path, names):
            if name == HEAD and spec.tied_embeddings:
                tied_heads.append(tensor.to(device=device, dtype=dtype))
            elif name not in wanted:
                _check_unexpected(path, name, spec)
            elif tuple(tensor.shape) != wanted[name]:
                raise CheckpointError(
                    f"{path}: {name} has shape {tuple(tensor.shape)}; want {wanted[name]}, from {directory / CONFIG}"
                )
            elif not tensor.is_floating_point():
                raise CheckpointError(f"{path}: {name} is {tensor.dtype}; want weights that are not quantized")
            else:
                tensors[name] = tensor.to(device=device, dtype=dtype)
    if missing := [name for name in wanted if name not in tensors]:
        file = next(name for name in (INDEX, WEIGHTS) if (directory / name).is_file())
        raise CheckpointError(
            f"{directory / file}: {missing[0]} is missing, one of {len(missing)} tensors; {REMEDY}, or fix {CONFIG}"
        )
    if any(not torch.equal(head, tensors[EMBEDDING]) for head in tied_heads):
        raise CheckpointError(
            f"{directory / CONFIG}: tie_word_embeddings is true, but {HEAD} differs from the embedding; fix either"
        )
    return Decoder(spec, tensors)


def model_name(directory: Path) -> str:
    """The architecture, with a digest of it and of all weights as they are stored: equal for equal models only.

    Reads every weight, at about a gigabyte a second.  Raises CheckpointError.
    """
    spec = replace(read_spec(directory), eos_token_ids=())
    wanted = tensor_shapes(spec)
    weights = {
        name: sha256(bytes_of(tensor)).hexdigest()
        for path, names in _files(directory).items()
        for name, tensor in _read_tensors(path, names)
        if name in wanted
    }
    digest = sha256(f"{spec} {sorted(weights.items())}".encode()).hexdigest()[:32]
    return f"{spec.architecture} of {len(spec.layers)} layers (sha256 {digest})"


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; {REMEDY}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}; {REMEDY}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: holds a {type(values).__name__}; want a JSON object")
    return values


def _files(directory: Path) -> Mapping[Path, list[str] | None]:
    """Each file of tensors, with the names of the tensors to read there; None for all."""
    if not (directory / INDEX).is_file():
        return {directory / WEIGHTS: None}
    weight_map = _read_json(directory / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CheckpointError(f"{directory / INDEX}: weight_map is missing or damaged; {REMEDY}")
    shards = sorted(set(weight_map.values()))
    return {directory / shard: [name for name, of in weight_map.items() if of == shard] for shard in shards}


def _read_tensors(path: Path, names: list[str] | None) -> Iterator[tuple[str, torch.Tensor]]:
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; {REMEDY}, or convert it to safetensors")
    try:
        with safe_open(path, framework="pt") as file:
            present = sorted(file.keys())
            if absent := sorted(set(names or ()) - set(present)):
                raise CheckpointError(f"{path}: {absent[0]} is missing, though {INDEX} lists it; {REMEDY}")
            yield from ((name, file.get_tensor(name)) for name in names or present)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: truncated or no safetensors file: {error}; {REMEDY}") from error


def _check_unexpected(path: Path, name: str, spec: ModelSpec) -> None:
    """Raises CheckpointError for an unexpected tensor, except for rotary tables, which are computed here."""
    if not name.endswith("rotary_emb.inv_freq"):
        raise CheckpointError(f"{path}: {name} is unexpected for {spec.architecture}; fix {CONFIG}, or remove it")
