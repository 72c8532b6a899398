"""The mixers of tokens, attention and recurrences, behind one interface; the caller stores keys, values and states."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch.nn import functional

from swarden.engine_under_test.model import layers
from swarden.engine_under_test.model.attention import Scoring
from swarden.engine_under_test.model.recurrent import BlockLinear, Mamba2, Recurrence, RgLru
from swarden.engine_under_test.model.spec import LayerKind, Mamba2Spec, ModelSpec, NormKind, QKNorm, RgLruSpec
from swarden.engine_under_test.model.weights import layer_prefix, names_of

Norm = layers.RmsNorm | layers.LayerNorm
Tensors = Mapping[str, torch.Tensor]


class LayerCache(Protocol):
    """The keys, the values and the states of tokens that were computed before, for the layers to read."""

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scoring: Scoring) -> torch.Tensor:
        """Store the keys and values of new tokens, and compute their attention over all stored ones.

        q is (n, heads, head_dim), k and v (n, kv_heads, head_dim), normed and rotated; returns q's shape.
        """
        ...

    def recur(self, layer: int, x: torch.Tensor, recurrence: Recurrence) -> torch.Tensor:
        """Continue each sequence's recurrence with x (n, inputs), and keep states needed later; returns (n, width)."""
        ...


class Mixer(Protocol):
    """The part of a layer in which a token depends on earlier tokens."""

    def __call__(
        self, x: torch.Tensor, rotations: torch.Tensor | None, cache: LayerCache, rows: torch.Tensor | None
    ) -> torch.Tensor:
        """x and the result are (n, hidden_size); with `rows` the result is (m, hidden_size)."""
        ...


class LayerTensors:
    """The tensors of one layer of a checkpoint, by their names within the layer."""

    def __init__(self, tensors: Tensors, spec: ModelSpec, index: int) -> None:
        self._tensors = tensors
        self._prefix = layer_prefix(index)
        self.spec = spec
        self.layer = spec.layers[index]
        self.names = names_of(spec)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._tensors[self._prefix + name]

    def norm(self, name: str | None) -> Norm | None:
        return None if name is None else make_norm(self[f"{name}.weight"], self.spec)

    def linear(self, *names: str, has_bias: bool) -> layers.Linear:
        """One Linear of the projections with these names, stacked in order."""
        return layers.Linear(self._stacked(names, "weight"), self._stacked(names, "bias") if has_bias else None)

    def _stacked(self, names: Sequence[str], kind: str) -> torch.Tensor:
        parts = [self[f"{name}.{kind}"] for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def make_norm(weight: torch.Tensor, spec: ModelSpec) -> Norm:
    weight = weight.to(layers.working_dtype(weight.dtype)) + spec.one_plus_weight
    return (
        layers.LayerNorm(weight, spec.norm_eps)
        if spec.norm_kind is NormKind.LAYER
        else layers.RmsNorm(weight, spec.norm_eps)
    )


def make_mixer(tensors: LayerTensors) -> Mixer:
    if tensors.layer.kind is not LayerKind.RECURRENT:
        return SelfAttention(tensors)
    match tensors.spec.recurrence:
        case RgLruSpec() as spec:
            return GriffinMixer(tensors, spec)
        case Mamba2Spec() as spec:
            return Mamba2Mixer(tensors, spec)
        case None:
            raise AssertionError(f"layer {tensors.layer.index} is recurrent, and the model has no recurrence")


class SelfAttention:
    """Projects to q, k and v, normalizes and rotates q and k, attends, and projects back."""

    def __init__(self, tensors: LayerTensors) -> None:
        spec = self._spec = tensors.spec
        self._index = tensors.layer.index
        self._name = tensors.names.attention
        rope = tensors.layer.rope
        self._rotated_dim = rope.rotated_dim(spec.head_dim) if rope else 0
        self._qk_size = (spec.num_heads + spec.num_kv_heads) * spec.head_dim
        self._qkv = self._stacked(tensors)
        self._output = tensors.linear(f"{self._name}.o_proj", has_bias=spec.output_bias)
        self._norms = self._qk_norms(tensors)
        sinks = tensors[f"{self._name}.sinks"] if spec.has_sinks else None
        self._scoring = Scoring(spec.attention_scale, spec.attention_softcap, sinks)

    def _stacked(self, tensors: LayerTensors) -> layers.Linear:
        """One projection for q, k and v."""
        parts = {
            kind: [self._in_pairs(tensors[f"{self._name}.{name}_proj.{kind}"]) for name in ("q", "k")]
            + [tensors[f"{self._name}.v_proj.{kind}"]]
            for kind in (("weight", "bias") if self._spec.qkv_bias else ("weight",))
        }
        stacked = {kind: torch.cat(of_kind) for kind, of_kind in parts.items()}
        return layers.Linear(stacked["weight"], stacked.get("bias"))

    def _in_pairs(self, rows: torch.Tensor) -> torch.Tensor:
        is_paired = self._spec.rope_interleaved or not self._rotated_dim
        return rows if is_paired else layers.halves_to_pairs(rows, self._spec.head_dim, self._rotated_dim)

    def _qk_norms(self, tensors: LayerTensors) -> list[Norm]:
        """One norm for each head of q and k, or one for q and one for k, or none."""
        spec = self._spec
        if spec.qk_norm is QKNorm.NONE:
            return []
        q, k = (self._in_pairs(tensors[f"{self._name}.{name}_norm.weight"]) for name in ("q", "k"))
        if spec.qk_norm is QKNorm.HEAD:
            q, k = q.expand(spec.num_heads, -1), k.expand(spec.num_kv_heads, -1)
            return [make_norm(torch.cat((q, k)), spec)]
        return [make_norm(q, spec), make_norm(k, spec)]

    def __call__(
        self, x: torch.Tensor, rotations: torch.Tensor | None, cache: LayerCache, rows: torch.Tensor | None
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
            qk = layers.rotate(qk, rotations)
        q, k = qk[:, : spec.num_heads], qk[:, spec.num_heads :]
        attended = cache.attend(self._index, q, k, v, self._scoring).flatten(1)
        return self._output(attended if rows is None else attended[rows])


class GriffinMixer:
    """Two branches: a recurrence, and a gate with an activation; their product is projected back."""

    def __init__(self, tensors: LayerTensors, spec: RgLruSpec) -> None:
        name, self._index = tensors.names.recurrent, tensors.layer.index
        self._activation = layers.ACTIVATIONS[spec.activation]
        self._input = tensors.linear(f"{name}.linear_x", f"{name}.linear_y", has_bias=True)
        self._output = tensors.linear(f"{name}.linear_out", has_bias=True)
        gates = [
            BlockLinear(tensors[f"{name}.rg_lru.{gate}_gate_weight"], tensors[f"{name}.rg_lru.{gate}_gate_bias"])
            for gate in ("input", "recurrent")
        ]
        core = RgLru(tensors[f"{name}.rg_lru.recurrent_param"], *gates)
        self._recurrence = Recurrence(tensors[f"{name}.conv_1d.weight"], tensors[f"{name}.conv_1d.bias"], core)

    def __call__(
        self, x: torch.Tensor, rotations: torch.Tensor | None, cache: LayerCache, rows: torch.Tensor | None
    ) -> torch.Tensor:
        inputs, gate = self._input(x).chunk(2, dim=1)
        recurred = cache.recur(self._index, inputs, self._recurrence)
        if rows is not None:
            recurred, gate = recurred[rows], gate[rows]
        return self._output(recurred * self._activation(gate))


class Mamba2Mixer:
    """One projection for the gate, the convolution and dt; the output is gated, normalized by group, projected back."""

    def __init__(self, tensors: LayerTensors, spec: Mamba2Spec) -> None:
        name, self._spec, self._index = tensors.names.recurrent, spec, tensors.layer.index
        self._input = tensors.linear(f"{name}.in_proj", has_bias=spec.projection_bias)
        self._output = tensors.linear(f"{name}.out_proj", has_bias=spec.projection_bias)
        weight = tensors[f"{name}.norm.weight"].view(spec.num_groups, -1)
        self._norm = layers.RmsNorm(weight.to(layers.working_dtype(weight.dtype)), tensors.spec.norm_eps)
        core = Mamba2(spec, tensors[f"{name}.A_log"], tensors[f"{name}.D"], tensors[f"{name}.dt_bias"])
        bias = tensors[f"{name}.conv1d.bias"] if spec.conv_bias else None
        self._recurrence = Recurrence(tensors[f"{name}.conv1d.weight"], bias, core)

    def __call__(
        self, x: torch.Tensor, rotations: torch.Tensor | None, cache: LayerCache, rows: torch.Tensor | None
    ) -> torch.Tensor:
        gate, inputs = self._input(x).tensor_split((self._spec.width,), dim=1)
        recurred = cache.recur(self._index, inputs, self._recurrence)
        if rows is not None:
            recurred, gate = recurred[rows], gate[rows]
        gated = recurred * functional.silu(gate)
        by_group = gated.view(len(gated), self._spec.num_groups, self._spec.width // self._spec.num_groups)
        return self._output(self._norm(by_group).flatten(1))
