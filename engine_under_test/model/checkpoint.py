"""Reads a checkpoint directory of Hugging Face: config.json, and safetensors in one file or in shards."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from swarden.engine_under_test.errors import CheckpointError
from swarden.engine_under_test.limits import MAX_JSON_BYTES, MAX_SHARDS
from swarden.engine_under_test.model.decoder import Decoder
from swarden.engine_under_test.model.files import REMEDY, ConfigFile, is_in, path_in, read_json
from swarden.engine_under_test.model.spec import ModelSpec
from swarden.engine_under_test.model.spec_config import spec_of
from swarden.engine_under_test.model.weights import EMBEDDING, HEAD, tensor_shapes
from swarden.engine_under_test.pools.kv_store import bytes_of

CONFIG = "config.json"
GENERATION = "generation_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
LENGTH_BYTES = 8  # at the beginning of a file of tensors: the length of its header, little-endian


def read_spec(directory: Path) -> ModelSpec:
    """The spec of config.json, with the end tokens of any generation_config.json; raises CheckpointError."""
    if not directory.is_dir():
        raise CheckpointError(f"{directory}: no such directory; want one with {CONFIG} and {WEIGHTS}")
    spec = spec_of(read_json(directory, CONFIG), str(directory / CONFIG))
    if not is_in(directory, GENERATION):
        return spec
    ends = ConfigFile(read_json(directory, GENERATION), str(directory / GENERATION)).token_ids("eos_token_id")
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
        for name, stored in _stored_tensors(path, names):
            is_tied_head = name == HEAD and spec.tied_embeddings
            shape, want = tuple(stored.get_shape()), wanted.get(EMBEDDING if is_tied_head else name)
            if want is None:
                _check_unexpected(path, name, spec)
                continue
            if shape != want:
                raise CheckpointError(f"{path}: {name} has shape {shape}; want {want}, from {directory / CONFIG}")
            tensor = stored[:]
            if not tensor.is_floating_point():
                raise CheckpointError(f"{path}: {name} is {tensor.dtype}; want weights that are not quantized")
            try:
                tensor = tensor.to(device=device, dtype=dtype)
            except RuntimeError as error:  # torch has no other error for a lack of memory on the CPU
                raise CheckpointError(f"{path}: {name} does not fit into the memory of {device}: {error}") from error
            if is_tied_head:
                tied_heads.append(tensor)
            else:
                tensors[name] = tensor
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
        name: sha256(bytes_of(stored[:])).hexdigest()
        for path, names in _files(directory).items()
        for name, stored in _stored_tensors(path, names)
        if name in wanted
    }
    digest = sha256(f"{spec} {sorted(weights.items())}".encode()).hexdigest()[:32]
    return f"{spec.architecture} of {len(spec.layers)} layers (sha256 {digest})"


def _files(directory: Path) -> Mapping[Path, list[str] | None]:
    """Each file of tensors, with the names of the tensors to read there; None for all."""
    if not is_in(directory, INDEX):
        return {path_in(directory, WEIGHTS): None}
    weight_map = read_json(directory, INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CheckpointError(f"{directory / INDEX}: weight_map is missing or damaged; {REMEDY}")
    shards: dict[str, list[str]] = {}
    for name, shard in weight_map.items():
        shards.setdefault(shard, []).append(name)
    if len(shards) > MAX_SHARDS:
        raise CheckpointError(f"{directory / INDEX}: weight_map names {len(shards)} files; want at most {MAX_SHARDS}")
    return {path_in(directory, shard): names for shard, names in sorted(shards.items())}


def _stored_tensors(path: Path, names: list[str] | None) -> Iterator[tuple[str, Any]]:
    """The tensors of a file, by name; a tensor shows its shape, and is read only when it is indexed."""
    try:
        with path.open("rb") as start:
            header_len = int.from_bytes(start.read(LENGTH_BYTES), "little")
        if header_len > MAX_JSON_BYTES:
            raise CheckpointError(f"{path}: has a header of {header_len} bytes; want at most {MAX_JSON_BYTES}")
        with safe_open(path, framework="pt") as file:
            present = sorted(file.keys())
            if absent := sorted(set(names or ()) - set(present)):
                raise CheckpointError(f"{path}: {absent[0]} is missing, though {INDEX} lists it; {REMEDY}")
            yield from ((name, file.get_slice(name)) for name in names or present)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: truncated or no safetensors file: {error}; {REMEDY}") from error


def _check_unexpected(path: Path, name: str, spec: ModelSpec) -> None:
    """Raises CheckpointError for an unexpected tensor, except for rotary tables, which are computed here."""
    if not name.endswith("rotary_emb.inv_freq"):
        raise CheckpointError(f"{path}: {name} is unexpected for {spec.architecture}; fix {CONFIG}, or remove it")
