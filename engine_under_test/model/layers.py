"""The parts of a decoder layer except attention: norms, rotary embeddings, gated MLPs, mixtures of experts."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

from swarden.engine_under_test.model.spec import MlpSpec, RopeSpec

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of norms, rotations and softmax in a model of `dtype`: at least float32."""
    return torch.promote_types(dtype, torch.float32)


class RmsNorm:
    """x / sqrt(mean(x²) + eps) times a weight, over the last dimension."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        """`weight` is in the working dtype; it includes the 1 of families that multiply by 1 + w."""
        size = weight.shape[-1]
        # x sqrt(n) / sqrt(|x|² + n eps) is the same, and takes fewer passes than the mean square.
        self._weight = weight * math.sqrt(size)
        self._floor = torch.tensor(math.sqrt(size * eps), dtype=weight.dtype, device=weight.device)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized x, in x's dtype; it is computed in the weight's dtype."""
        dtype, x = x.dtype, x.to(self._weight.dtype)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot_(self._floor)
        return torch.div(x, length).mul_(self._weight).to(dtype)


class LayerNorm:
    """(x - mean) / sqrt(variance + eps) times a weight, over the last dimension; no bias."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        """`weight` is (size,), in the working dtype."""
        self._weight = weight
        self._eps = eps

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized x, in x's dtype; it is computed in the weight's dtype."""
        dtype, x = x.dtype, x.to(self._weight.dtype)
        return functional.layer_norm(x, self._weight.shape, self._weight, None, self._eps).to(dtype)


class Linear(NamedTuple):
    """x W^T + b: `weight` is (outputs, inputs), `bias` (outputs,) or absent."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight, self.bias)


# --- rotary embeddings


def inverse_frequencies(rope: RopeSpec, head_dim: int, dtype: torch.dtype) -> torch.Tensor:
    """The angle by which each rotated pair turns from one position to the next, in radians: (rotated_dim / 2,)."""
    rotated_dim = rope.rotated_dim(head_dim)
    exponents = torch.arange(0, rotated_dim, 2, dtype=dtype) / rotated_dim
    frequencies = 1.0 / rope.theta**exponents
    return SCALINGS[rope.rope_type](rope, frequencies)


def _unscaled(_rope: RopeSpec, frequencies: torch.Tensor) -> torch.Tensor:
    return frequencies


def _linear(rope: RopeSpec, frequencies: torch.Tensor) -> torch.Tensor:
    return frequencies / rope.factor


def _yarn(rope: RopeSpec, frequencies: torch.Tensor) -> torch.Tensor:
    """Yarn: stretch the slow pairs only.

    Pairs with at least `beta_fast` turns in the original length are kept; pairs with at most `beta_slow` are stretched.
    """
    num_pairs = len(frequencies)

    def pair_that_turns(times: float) -> float:
        return num_pairs * math.log(rope.original_len / (times * 2 * math.pi)) / math.log(rope.theta)

    low, high = pair_that_turns(rope.beta_fast), pair_that_turns(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * num_pairs - 1)
    width = high - low or 0.001  # a step where both bounds are on one pair; crossed bounds give 0 or 1
    stretched = ((torch.arange(num_pairs, dtype=frequencies.dtype) - low) / width).clamp(0, 1)
    return frequencies / rope.factor * stretched + frequencies * (1 - stretched)


def _llama3(rope: RopeSpec, frequencies: torch.Tensor) -> torch.Tensor:
    """As yarn, but the ramp is over the number of turns in the original length."""
    turns = rope.original_len * frequencies / (2 * math.pi)
    kept = ((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)).clamp(0, 1)
    return frequencies / rope.factor * (1 - kept) + frequencies * kept


SCALINGS: dict[str, Callable[[RopeSpec, torch.Tensor], torch.Tensor]] = {
    "default": _unscaled,
    "linear": _linear,
    "yarn": _yarn,
    "llama3": _llama3,
}


def rotation_table(rope: RopeSpec, head_dim: int, context_len: int, dtype: torch.dtype) -> torch.Tensor:
    """The rotation of each pair at each position, as complex numbers: (context_len, head_dim / 2).

    The last pairs, which are not rotated, have the rotation 1.
    """
    dtype = working_dtype(dtype)
    angles = torch.outer(torch.arange(context_len, dtype=dtype), inverse_frequencies(rope, head_dim, dtype))
    rotated = torch.polar(torch.full_like(angles, rope.attention_factor), angles)
    return functional.pad(rotated, (0, head_dim // 2 - rotated.shape[1]), value=1.0)


def rotate(x: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of neighbours of x, (n, heads, contiguous head_dim), by complex (n, 1, head_dim / 2)."""
    tokens, heads, head_dim = x.shape
    pairs = x.to(rotations.dtype.to_real()).view(tokens, heads, head_dim // 2, 2)
    return torch.view_as_real(torch.view_as_complex(pairs) * rotations).view(tokens, heads, head_dim).to(x.dtype)


def halves_to_pairs(rows: torch.Tensor, head_dim: int, rotated_dim: int) -> torch.Tensor:
    """Reorder rows, (heads * head_dim, …), from pairs across the two halves of a head to pairs of neighbours.

    Only the first `rotated_dim` rows of a head are in pairs.  Scores are sums over the dimensions of a head, so an
    order that q and k share does not change them.
    """
    order = torch.arange(head_dim, device=rows.device)
    order[:rotated_dim] = order[:rotated_dim].view(2, -1).t().flatten()
    return rows.reshape(-1, head_dim, *rows.shape[1:])[:, order].reshape(rows.shape)


# --- MLPs

# Multiplications in one expert's first matrix that take as long as the overhead of one call, 100 to 200 us.
WORK_PER_CALL = 1 << 19


class GatedMlp:
    """down(activation(gate(x)) * up(x))."""

    def __init__(self, spec: MlpSpec, gate_up: Linear, down: Linear) -> None:
        """`gate_up` has 2 * intermediate_size outputs, the gate's first."""
        self._activation = ACTIVATIONS[spec.activation]
        self._gate_up = gate_up
        self._down = down

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x and the result are (n, hidden_size)."""
        gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self._down(self._activation(gate).mul_(up))


class ExpertWeights(NamedTuple):
    """The experts of one layer, each of which multiplies rows by a matrix on the right; one bias per expert."""

    router: Linear  # (experts, hidden)
    gate_up: torch.Tensor  # (experts, hidden, 2 * intermediate), the gate's columns first
    gate_up_bias: torch.Tensor
    down: torch.Tensor  # (experts, intermediate, hidden)
    down_bias: torch.Tensor


class MixtureOfExperts:
    """Each token uses its best experts, weighted by the softmax over these."""

    def __init__(self, spec: MlpSpec, weights: ExpertWeights) -> None:
        self._spec = spec
        self._weights = weights

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x and the result are (n, hidden_size)."""
        best = self._weights.router(x).topk(self._spec.experts_per_token, dim=-1)
        shares = best.values.softmax(dim=-1)
        num_calls = min(self._spec.num_experts, best.indices.numel())
        if self._spec.num_experts * x.numel() * self._spec.intermediate_size <= num_calls * WORK_PER_CALL:
            return self._all_at_once(x, best.indices, shares)
        return self._one_by_one(x, best.indices, shares)

    def _all_at_once(self, x: torch.Tensor, taken: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Every expert computes every token, in one call."""
        weights, num_experts = self._weights, self._spec.num_experts
        gate_up = torch.baddbmm(weights.gate_up_bias[:, None], x.expand(num_experts, -1, -1), weights.gate_up)
        computed = torch.baddbmm(weights.down_bias[:, None], self._opened(gate_up), weights.down)
        of_all = shares.new_zeros(len(x), num_experts).scatter_(1, taken, shares)
        return computed.mul_(of_all.t().unsqueeze(2)).sum(dim=0)

    def _one_by_one(self, x: torch.Tensor, taken: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """Each expert computes the tokens that use it, in one call per expert."""
        weights, count = self._weights, self._spec.experts_per_token
        by_expert = taken.flatten().argsort(stable=True)
        num_tokens = torch.bincount(taken.flatten(), minlength=self._spec.num_experts).tolist()
        computed = []
        for expert, part in enumerate(torch.split(x[by_expert // count], num_tokens)):
            if len(part):
                gate_up = torch.addmm(weights.gate_up_bias[expert], part, weights.gate_up[expert])
                computed.append(torch.addmm(weights.down_bias[expert], self._opened(gate_up), weights.down[expert]))
        weighted = torch.cat(computed).mul_(shares.flatten()[by_expert, None])
        in_order = torch.empty_like(weighted)
        in_order[by_expert] = weighted  # and a sum after it, because index_add_ is not deterministic on CUDA
        return in_order.view(len(x), count, -1).sum(dim=1)

    def _opened(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        gate, up = gate.clamp_(max=self._spec.limit), up.clamp_(-self._spec.limit, self._spec.limit)
        return torch.sigmoid(gate * self._spec.alpha).mul_(gate).mul_(up.add_(1))
