"""The names and shapes of the tensors of a model."""

from typing import NamedTuple

import torch

from swarden.engine_under_test.model.spec import LayerKind, Mamba2Spec, ModelSpec, NormPlacement, QKNorm, RgLruSpec

Shape = tuple[int, ...]

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
# Large enough that tokens, positions and windows change the logits of a tiny model.
RANDOM_DEVIATION = 0.3
# The mean of random tensors whose name ends so.  States of this decay reach over tens of tokens.
RANDOM_MEANS = {"recurrent_param": -4.0, "A_log": -3.0}


class LayerNorms(NamedTuple):
    """The names of the norms of one layer; None where there is none."""

    before_mixer: str | None
    after_mixer: str | None
    before_mlp: str | None
    after_mlp: str | None


# The same name has another meaning in another family.
LAYER_NORMS = {
    NormPlacement.BEFORE: LayerNorms("input_layernorm", None, "post_attention_layernorm", None),
    NormPlacement.AROUND: LayerNorms(
        "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
    ),
    NormPlacement.AFTER: LayerNorms(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    NormPlacement.PARALLEL: LayerNorms("input_layernorm", None, None, None),
}


class TensorNames(NamedTuple):
    """The names that differ between families: of the final norm, and of the parts of a layer within it."""

    norms: LayerNorms
    final_norm: str = "model.norm.weight"
    attention: str = "self_attn"
    recurrent: str = "recurrent"
    mlp: str = "mlp"


NAMES = {
    "RecurrentGemmaForCausalLM": TensorNames(
        LayerNorms("temporal_pre_norm", None, "channel_pre_norm", None),
        final_norm="model.final_norm.weight",
        attention="temporal_block",
        recurrent="temporal_block",
        mlp="mlp_block",
    ),
    "BambaForCausalLM": TensorNames(
        LayerNorms("input_layernorm", None, "pre_ff_layernorm", None),
        final_norm="model.final_layernorm.weight",
        recurrent="mamba",
        mlp="feed_forward",
    ),
}


def names_of(spec: ModelSpec) -> TensorNames:
    return NAMES.get(spec.architecture) or TensorNames(LAYER_NORMS[spec.norm_placement])


def layer_prefix(index: int) -> str:
    return f"model.layers.{index}."


def tensor_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """The shape of each tensor that a checkpoint of `spec` must have, by name."""
    names = names_of(spec)
    shapes: dict[str, Shape] = {EMBEDDING: (spec.vocab_size, spec.hidden_size), names.final_norm: (spec.hidden_size,)}
    if not spec.tied_embeddings:
        shapes[HEAD] = (spec.vocab_size, spec.hidden_size)
    of_mixers = {kind: _mixer_shapes(spec, kind) for kind in {layer.kind for layer in spec.layers}}
    of_each = _mlp_shapes(spec, names.mlp) | {
        f"{name}.weight": (spec.hidden_size,) for name in names.norms if name is not None
    }
    for layer in spec.layers:
        prefix = layer_prefix(layer.index)
        shapes |= {prefix + name: shape for name, shape in (of_mixers[layer.kind] | of_each).items()}
    return shapes


def _mixer_shapes(spec: ModelSpec, kind: LayerKind) -> dict[str, Shape]:
    names = names_of(spec)
    if kind is not LayerKind.RECURRENT:
        name, shapes = names.attention, _attention_shapes(spec)
    elif isinstance(spec.recurrence, RgLruSpec):
        name, shapes = names.recurrent, _griffin_shapes(spec, spec.recurrence)
    else:
        assert spec.recurrence is not None, "a layer is recurrent, and the model has no recurrence"
        name, shapes = names.recurrent, _mamba2_shapes(spec, spec.recurrence)
    return {f"{name}.{tensor}": shape for tensor, shape in shapes.items()}


def _griffin_shapes(spec: ModelSpec, recurrence: RgLruSpec) -> dict[str, Shape]:
    hidden, width, blocks = spec.hidden_size, recurrence.width, recurrence.num_blocks
    block = width // blocks
    shapes: dict[str, Shape] = {}
    for name, outputs, inputs in (
        ("linear_x", width, hidden),
        ("linear_y", width, hidden),
        ("linear_out", hidden, width),
    ):
        shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
    shapes |= {"conv_1d.weight": (width, 1, recurrence.conv_len), "conv_1d.bias": (width,)}
    for gate in ("input_gate", "recurrent_gate"):
        shapes |= {f"rg_lru.{gate}_weight": (blocks, block, block), f"rg_lru.{gate}_bias": (blocks, block)}
    return {**shapes, "rg_lru.recurrent_param": (width,)}


def _mamba2_shapes(spec: ModelSpec, recurrence: Mamba2Spec) -> dict[str, Shape]:
    heads, width, channels = recurrence.num_heads, recurrence.width, recurrence.conv_width
    shapes: dict[str, Shape] = {
        "in_proj.weight": (width + channels + heads, spec.hidden_size),
        "conv1d.weight": (channels, 1, recurrence.conv_len),
        "norm.weight": (width,),
        "out_proj.weight": (spec.hidden_size, width),
    }
    shapes |= dict.fromkeys(("A_log", "D", "dt_bias"), (heads,))
    if recurrence.conv_bias:
        shapes["conv1d.bias"] = (channels,)
    if recurrence.projection_bias:
        shapes |= {"in_proj.bias": (width + channels + heads,), "out_proj.bias": (spec.hidden_size,)}
    return shapes


def _attention_shapes(spec: ModelSpec) -> dict[str, Shape]:
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, Shape] = {}
    for name, size in (("q_proj", q_size), ("k_proj", kv_size), ("v_proj", kv_size)):
        shapes[f"{name}.weight"] = (size, spec.hidden_size)
        if spec.qkv_bias:
            shapes[f"{name}.bias"] = (size,)
    shapes["o_proj.weight"] = (spec.hidden_size, q_size)
    if spec.output_bias:
        shapes["o_proj.bias"] = (spec.hidden_size,)
    if spec.has_sinks:
        shapes["sinks"] = (spec.num_heads,)
    if spec.qk_norm is QKNorm.HEAD:
        shapes |= {f"{name}_norm.weight": (spec.head_dim,) for name in ("q", "k")}
    if spec.qk_norm is QKNorm.PROJECTION:
        shapes |= {"q_norm.weight": (q_size,), "k_norm.weight": (kv_size,)}
    return shapes


def _mlp_shapes(spec: ModelSpec, name: str) -> dict[str, Shape]:
    hidden, inner, experts = spec.hidden_size, spec.mlp.intermediate_size, spec.mlp.num_experts
    if experts == 0:
        shapes: dict[str, Shape] = {
            f"{name}.gate_proj.weight": (inner, hidden),
            f"{name}.up_proj.weight": (inner, hidden),
            f"{name}.down_proj.weight": (hidden, inner),
        }
        if spec.mlp.bias:
            shapes |= {f"{name}.gate_proj.bias": (inner,), f"{name}.up_proj.bias": (inner,)}
            shapes[f"{name}.down_proj.bias"] = (hidden,)
        return shapes
    return {
        f"{name}.router.weight": (experts, hidden),
        f"{name}.router.bias": (experts,),
        f"{name}.experts.gate_up_proj": (experts, hidden, 2 * inner),
        f"{name}.experts.gate_up_proj_bias": (experts, 2 * inner),
        f"{name}.experts.down_proj": (experts, inner, hidden),
        f"{name}.experts.down_proj_bias": (experts, hidden),
    }


def random_tensors(spec: ModelSpec, seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Normally distributed tensors of `spec`, which the seed determines; norms multiply by about 1."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(spec).items():
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64) * RANDOM_DEVIATION
        around_one = "norm" in name and not spec.one_plus_weight
        mean = 1.0 if around_one else RANDOM_MEANS.get(name.rpartition(".")[2], 0.0)
        tensors[name] = (drawn + mean).to(dtype)
    return tensors
