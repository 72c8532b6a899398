"""The decoder: from token ids and positions to logits.  The caller stores the keys and values."""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch.nn import functional

from engine_under_test.model.attention import Scoring, attention, visible
from engine_under_test.model.layers import (
    ExpertWeights,
    GatedMlp,
    LayerNorm,
    Linear,
    MixtureOfExperts,
    RmsNorm,
    halves_to_pairs,
    rotate,
    rotation_table,
    working_dtype,
)
from engine_under_test.model.spec import ModelSpec, NormKind, NormPlacement, QKNorm
from engine_under_test.model.weights import EMBEDDING, FINAL_NORM, HEAD, LAYER_NORMS, layer_prefix, random_tensors

Norm = RmsNorm | LayerNorm
Tensors = Mapping[str, torch.Tensor]
MIN_CONTEXT_LEN = 1024  # rotations that every decoder has; `reserve` adds more


class Attend(Protocol):
    """Stores the keys and values of new tokens, and computes their attention over all stored ones."""

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scoring: Scoring) -> torch.Tensor:
        """q is (n, heads, head_dim), k and v (n, kv_heads, head_dim), normed and rotated; returns q's shape."""
        ...


class Decoder:
    """A decoder of any of the families, on one device, in one dtype.

    The caller sets torch's inference mode.
    """

    def __init__(self, spec: ModelSpec, tensors: Tensors) -> None:
        """`tensors` are those of `weights.tensor_shapes(spec)`, all of one dtype and on one device."""
        self.spec = spec
        self._embedding = tensors[EMBEDDING]
        self._head = tensors[EMBEDDING if spec.tied_embeddings else HEAD]
        self._norm = make_norm(tensors[FINAL_NORM], spec)
        self._layers = [DecoderLayer(LayerTensors(tensors, spec, layer.index)) for layer in spec.layers]
        self._ropes = [None if layer.rope is None else spec.ropes.index(layer.rope) for layer in spec.layers]
        # Rounded to the dtype of the weights, as in training.
        self._embedding_scale = torch.tensor(spec.embedding_scale, dtype=self.dtype).item()
        self._rotations: list[torch.Tensor] = []
        self.reserve(min(spec.max_context_len, MIN_CONTEXT_LEN))

    @property
    def dtype(self) -> torch.dtype:
        return self._embedding.dtype

    @property
    def device(self) -> torch.device:
        return self._embedding.device

    def reserve(self, context_len: int) -> None:
        """Make the rotations of positions below `context_len`, which `hidden` needs."""
        if not self._rotations or context_len > len(self._rotations[0]):
            self._rotations = [
                rotation_table(rope, self.spec.head_dim, context_len, self.dtype).to(self.device)
                for rope in self.spec.ropes
            ]

    def hidden(
        self, token_ids: torch.Tensor, positions: torch.Tensor, attend: Attend, rows: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The state of each token after the final norm: (n, hidden_size), or (m, hidden_size) with `rows`, (m,) int64.

        Token ids and positions are (n,) int64 on the decoder's device, and may be of several sequences.
        """
        x = self._embedding.index_select(0, token_ids)
        if self._embedding_scale != 1.0:
            x = x.mul_(self._embedding_scale)
        rotations = [table.index_select(0, positions).unsqueeze(1) for table in self._rotations]
        last = self._layers[-1]
        for layer, rope in zip(self._layers, self._ropes, strict=True):
            x = layer(x, None if rope is None else rotations[rope], attend, rows if layer is last else None)
        return self._norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The logits, (m, vocab_size), of m hidden states."""
        logits = functional.linear(hidden, self._head)
        if self.spec.logit_scale != 1.0:
            logits = logits.mul_(self.spec.logit_scale)
        if self.spec.final_softcap is not None:
            logits = logits.div_(self.spec.final_softcap).tanh_().mul_(self.spec.final_softcap)
        return logits


def random_decoder(spec: ModelSpec, seed: int, dtype: torch.dtype) -> Decoder:
    """A decoder on the CPU with random weights, which the seed determines."""
    return Decoder(spec, random_tensors(spec, seed, dtype))


def dense_logits(decoder: Decoder, token_ids: torch.Tensor) -> torch.Tensor:
    """Logits at each token of one sequence, (n, vocab_size), without a cache: the reference for paged runs."""
    spec = decoder.spec
    decoder.reserve(len(token_ids))
    positions = torch.arange(len(token_ids), device=decoder.device)
    masks = {
        is_sliding: visible(positions, positions, spec.sliding_window if is_sliding else None)[None, None]
        for is_sliding in (False, True)
    }

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scoring: Scoring) -> torch.Tensor:
        q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in (q, k, v))
        return attention(q, k, v, mask=masks[spec.layers[layer].is_sliding], scoring=scoring)[0].transpose(0, 1)

    return decoder.logits(decoder.hidden(token_ids, positions, attend))


# --- a layer


class LayerTensors:
    """The tensors of one layer of a checkpoint, by their names within the layer."""

    def __init__(self, tensors: Tensors, spec: ModelSpec, index: int) -> None:
        self._tensors = tensors
        self._prefix = layer_prefix(index)
        self.spec = spec
        self.index = index

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._tensors[self._prefix + name]

    def norm(self, name: str | None) -> Norm | None:
        return None if name is None else make_norm(self[f"{name}.weight"], self.spec)


def make_norm(weight: torch.Tensor, spec: ModelSpec) -> Norm:
    weight = weight.to(working_dtype(weight.dtype)) + spec.one_plus_weight
    return LayerNorm(weight, spec.norm_eps) if spec.norm_kind is NormKind.LAYER else RmsNorm(weight, spec.norm_eps)


def make_mlp(tensors: LayerTensors) -> GatedMlp | MixtureOfExperts:
    if tensors.spec.mlp.num_experts:
        router = Linear(tensors["mlp.router.weight"], tensors["mlp.router.bias"])
        # In checkpoints the columns of gate and up alternate.
        gate_up, bias = (
            torch.cat((stored[..., ::2], stored[..., 1::2]), dim=-1)
            for stored in (tensors["mlp.experts.gate_up_proj"], tensors["mlp.experts.gate_up_proj_bias"])
        )
        down = (tensors["mlp.experts.down_proj"], tensors["mlp.experts.down_proj_bias"])
        return MixtureOfExperts(tensors.spec.mlp, ExpertWeights(router, gate_up, bias, *down))
    gate_up = torch.cat([tensors["mlp.gate_proj.weight"], tensors["mlp.up_proj.weight"]])
    return GatedMlp(tensors.spec.mlp, gate_up, tensors["mlp.down_proj.weight"])


class DecoderLayer:
    """Attention, then an MLP, or both in parallel; each adds to the residual stream."""

    def __init__(self, tensors: LayerTensors) -> None:
        norms = LAYER_NORMS[tensors.spec.norm_placement]
        self._attention = SelfAttention(tensors)
        self._mlp = make_mlp(tensors)
        self._parallel = tensors.spec.norm_placement is NormPlacement.PARALLEL
        self._before_attention = tensors.norm(norms.before_attention)
        self._after_attention = tensors.norm(norms.after_attention)
        self._before_mlp = tensors.norm(norms.before_mlp)
        self._after_mlp = tensors.norm(norms.after_mlp)

    def __call__(
        self, x: torch.Tensor, rotations: torch.Tensor | None, attend: Attend, rows: torch.Tensor | None
    ) -> torch.Tensor:
        """x and the result are (n, hidden_size); in the last layer the result may be of `rows` only."""
        normed = self._before_attention(x) if self._before_attention else x
        attended = self._attention(normed, rotations, attend, rows)
        if rows is not None:
            x, normed = x[rows], normed[rows]
        if self._parallel:
            return attended.add_(x).add_(self._mlp(normed))
        if self._after_attention:
            attended = self._after_attention(attended)
        x = attended.add_(x)
        computed = self._mlp(self._before_mlp(x) if self._before_mlp else x)
        if self._after_mlp:
            computed = self._after_mlp(computed)
        return computed.add_(x)


class SelfAttention:
    """Projects to q, k and v, normalizes and rotates q and k, attends, and projects back."""

    def __init__(self, tensors: LayerTensors) -> None:
        spec = self._spec = tensors.spec
        self._index = tensors.index
        self._qk_size = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
        self._qkv = self._stacked(tensors)
        output_bias = tensors["self_attn.o_proj.bias"] if spec.output_bias else None
        self._output = Linear(tensors["self_attn.o_proj.weight"], output_bias)
        self._norms = self._qk_norms(tensors)
        sinks = tensors["self_attn.sinks"] if spec.has_sinks else None
        self._scoring = Scoring(spec.attention_scale, spec.attention_softcap, sinks)

    def _stacked(self, tensors: LayerTensors) -> Linear:
        """One projection for q, k and v."""
        parts = {
            kind: [self._in_pairs(tensors[f"self_attn.{name}_proj.{kind}"]) for name in ("q", "k")]
            + [tensors[f"self_attn.v_proj.{kind}"]]
            for kind in (("weight", "bias") if self._spec.qkv_bias else ("weight",))
        }
        stacked = {kind: torch.cat(of_kind) for kind, of_kind in parts.items()}
        return Linear(stacked["weight"], stacked.get("bias"))

    def _in_pairs(self, rows: torch.Tensor) -> torch.Tensor:
        return rows if self._spec.rope_interleaved else halves_to_pairs(rows, self._spec.head_dim)

    def _qk_norms(self, tensors: LayerTensors) -> list[Norm]:
        """One norm for each head of q and k, or one for q and one for k, or none."""
        spec = self._spec
        if spec.qk_norm is QKNorm.NONE:
            return []
        q, k = (self._in_pairs(tensors[f"self_attn.{name}_norm.weight"]) for name in ("q", "k"))
        if spec.qk_norm is QKNorm.HEAD:
            q, k = q.expand(spec.num_heads, -1), k.expand(spec.num_kv_heads, -1)
            return [make_norm(torch.cat((q, k)), spec)]
        return [make_norm(q, spec), make_norm(k, spec)]

    def __call__(
        self, x: torch.Tensor, rotations: torch.Tensor | None, attend: Attend, rows: torch.Tensor | None
    ) -> torch.Tensor:
        """The attention output of x, (n, hidden_size), or of its `rows`.  Without rotations q and k are not rotated."""
        spec = self._spec
        qkv = self._qkv(x)
        qk, v = qkv[:, : self._qk_size], qkv[:, self._qk_size :].view(len(x), -1, spec.head_dim)
        if spec.qk_norm is QKNorm.PROJECTION:
            q_size = spec.num_heads * spec.head_dim
            norm_q, norm_k = self._norms
            qk = torch.cat((norm_q(qk[:, :q_size]), norm_k(qk[:, q_size:])), dim=1)
        qk = qk.view(len(x), -1, spec.head_dim)
        if spec.qk_norm is QKNorm.HEAD:
            qk = self._norms[0](qk)
        if rotations is not None:
            qk = rotate(qk, rotations)
        q, k = qk[:, : spec.num_heads], qk[:, spec.num_heads :]
        attended = attend(self._index, q, k, v, self._scoring).flatten(1)
        return self._output(attended if rows is None else attended[rows])
