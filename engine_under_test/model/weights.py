"""The names and shapes of the tensors of a model."""

from typing import NamedTuple

import torch

from engine_under_test.model.spec import ModelSpec, NormPlacement, QKNorm

Shape = tuple[int, ...]

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
HEAD = "lm_head.weight"
# Large enough that tokens, positions and windows change the logits of a tiny model.
RANDOM_DEVIATION = 0.3


class LayerNorms(NamedTuple):
    """The names of the norms of one layer; None where there is none."""

    before_attention: str | None
    after_attention: str | None
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


def layer_prefix(index: int) -> str:
    return f"model.layers.{index}."


def tensor_shapes(spec: ModelSpec) -> dict[str, Shape]:
    """The shape of each tensor that a checkpoint of `spec` must have, by name."""
    shapes: dict[str, Shape] = {EMBEDDING: (spec.vocab_size, spec.hidden_size), FINAL_NORM: (spec.hidden_size,)}
    if not spec.tied_embeddings:
        shapes[HEAD] = (spec.vocab_size, spec.hidden_size)
    of_a_layer = _attention_shapes(spec) | _mlp_shapes(spec) | _norm_shapes(spec)
    for layer in spec.layers:
        shapes |= {layer_prefix(layer.index) + name: shape for name, shape in of_a_layer.items()}
    return shapes


def _attention_shapes(spec: ModelSpec) -> dict[str, Shape]:
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    shapes: dict[str, Shape] = {}
    for name, size in (("q_proj", q_size), ("k_proj", kv_size), ("v_proj", kv_size)):
        shapes[f"self_attn.{name}.weight"] = (size, spec.hidden_size)
        if spec.qkv_bias:
            shapes[f"self_attn.{name}.bias"] = (size,)
    shapes["self_attn.o_proj.weight"] = (spec.hidden_size, q_size)
    if spec.output_bias:
        shapes["self_attn.o_proj.bias"] = (spec.hidden_size,)
    if spec.has_sinks:
        shapes["self_attn.sinks"] = (spec.num_heads,)
    if spec.qk_norm is QKNorm.HEAD:
        shapes |= {f"self_attn.{name}_norm.weight": (spec.head_dim,) for name in ("q", "k")}
    if spec.qk_norm is QKNorm.PROJECTION:
        shapes |= {"self_attn.q_norm.weight": (q_size,), "self_attn.k_norm.weight": (kv_size,)}
    return shapes


def _mlp_shapes(spec: ModelSpec) -> dict[str, Shape]:
    hidden, inner, experts = spec.hidden_size, spec.mlp.intermediate_size, spec.mlp.num_experts
    if experts == 0:
        return {
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
        }
    return {
        "mlp.router.weight": (experts, hidden),
        "mlp.router.bias": (experts,),
        "mlp.experts.gate_up_proj": (experts, hidden, 2 * inner),
        "mlp.experts.gate_up_proj_bias": (experts, 2 * inner),
        "mlp.experts.down_proj": (experts, inner, hidden),
        "mlp.experts.down_proj_bias": (experts, hidden),
    }


def _norm_shapes(spec: ModelSpec) -> dict[str, Shape]:
    return {f"{name}.weight": (spec.hidden_size,) for name in LAYER_NORMS[spec.norm_placement] if name is not None}


def random_tensors(spec: ModelSpec, seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Normally distributed tensors of `spec`, which the seed determines; norms multiply by about 1."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in tensor_shapes(spec).items():
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64) * RANDOM_DEVIATION
        around_one = "norm" in name and not spec.one_plus_weight
        tensors[name] = (drawn + 1 if around_one else drawn).to(dtype)
    return tensors
