"""Recurrent layers as pure functions of their new tokens and of the state after the token before them.

A state is one flat vector a layer: the last inputs of the causal convolution, then the state of the recurrence itself.
States are computed in at least float32.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch.nn import functional

from swarden.engine_under_test.model.layers import ACTIVATIONS, working_dtype
from swarden.engine_under_test.model.spec import Mamba2Spec

# Tokens that Mamba 2 computes at once: the work within a block is quadratic, each block is one step of a loop.
BLOCK_LEN = 64


class Recurred(NamedTuple):
    """The output of a recurrence, (batch, tokens, width), and the states after the asked tokens, (batch, asked, …)."""

    out: torch.Tensor
    states: torch.Tensor


class Core(Protocol):
    """A recurrence behind the convolution."""

    def __call__(
        self, x: torch.Tensor, beside: torch.Tensor, state: torch.Tensor | None, asked: Sequence[int]
    ) -> Recurred:
        """As `Recurrence`; x is the convolved inputs, `beside` the other inputs, (batch, tokens, rest)."""
        ...


class Recurrence:
    """A causal convolution, then a core.  One object a layer, without any state of its own."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, core: Core) -> None:
        """`weight` is (channels, 1, taps), as in a checkpoint, the last tap for the newest token."""
        self._weight = weight.squeeze(1)
        self._bias = 0.0 if bias is None else bias
        self._core = core

    def __call__(self, x: torch.Tensor, state: torch.Tensor | None, asked: Sequence[int]) -> Recurred:
        """The outputs of all tokens, and the states, (batch, asked, state_size), after the tokens `asked`.

        x is (batch, tokens, inputs): the channels of the convolution first.  `state` is (batch, state_size), after the
        token before the first one; None at the start of the sequences.  `asked` are indices of tokens, in order.
        """
        batch = len(x)
        channels, taps = self._weight.shape
        tail_size, dtype = (taps - 1) * channels, working_dtype(x.dtype)
        if state is None:
            tail, kept = x.new_zeros(batch, taps - 1, channels), None
        else:
            tail, kept = state[:, :tail_size].view(batch, taps - 1, channels).to(x.dtype), state[:, tail_size:]
        padded = torch.cat((tail, x[..., :channels]), dim=1)
        # For a few tokens conv1d takes longer.
        convolved = (padded.unfold(1, taps, 1) * self._weight).sum(3) + self._bias
        out, states = self._core(convolved, x[..., channels:], kept, asked)
        # After token t the last inputs are padded[t + 1] to padded[t + taps - 1].
        tails = padded.unfold(1, taps - 1, 1)[:, [token + 1 for token in asked]].transpose(2, 3).flatten(2)
        return Recurred(out, torch.cat((tails.to(dtype), states.to(dtype)), dim=2))


class BlockLinear(NamedTuple):
    """x W + b with blocks on the diagonal: `weight` is (blocks, size, size), `bias` (blocks, size)."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        by_block = x.reshape(-1, *self.bias.shape).transpose(0, 1)
        return torch.baddbmm(self.bias[:, None], by_block, self.weight).transpose(0, 1).reshape(x.shape)


class RgLru:
    """The real-gated linear recurrent unit of Griffin: h = a h' + sqrt(1 - a²) i x, with gates a and i of the input.

    Source: arXiv 2402.19427, section 2.4.  At the start of a sequence the factor of the input is i alone.
    """

    def __init__(self, decay: torch.Tensor, input_gate: BlockLinear, decay_gate: BlockLinear) -> None:
        """`decay` is the parameter Λ, (width,)."""
        self._log_decay = -8.0 * functional.softplus(decay.to(working_dtype(decay.dtype)))
        self._input_gate = input_gate
        self._decay_gate = decay_gate

    def __call__(
        self, x: torch.Tensor, beside: torch.Tensor, state: torch.Tensor | None, asked: Sequence[int]
    ) -> Recurred:
        """`beside` is empty; the state is (batch, width)."""
        log_decay = self._log_decay * self._decay_gate(x).sigmoid()
        added = (x * self._input_gate(x).sigmoid()).to(log_decay.dtype)
        scaled, decay = added * torch.sqrt(-torch.expm1(2 * log_decay)), log_decay.exp()
        scaled[:, 0] = added[:, 0] if state is None else scaled[:, 0] + decay[:, 0] * state
        states = linear_scan(decay, scaled)
        return Recurred(states.to(x.dtype), states[:, list(asked)])


def linear_scan(decay: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
    """All h of h[t] = decay[t] h[t - 1] + added[t] from h[-1] = 0, over dimension 1; in log2 of its length steps.

    Each step doubles the number of tokens whose sum an element is (Hillis and Steele, Data Parallel Algorithms, 1986).
    """
    step = 1
    while step < added.shape[1]:
        added = torch.cat((added[:, :step], added[:, step:] + decay[:, step:] * added[:, :-step]), dim=1)
        decay = torch.cat((decay[:, :step], decay[:, step:] * decay[:, :-step]), dim=1)
        step *= 2
    return added


class Mamba2:
    """The selective state space of Mamba 2: per head S = exp(-A dt) S' + dt x B^T, and y = S C + D x.

    Source: arXiv 2405.21060, section 6, with a loop over the blocks of tokens.
    """

    def __init__(self, spec: Mamba2Spec, a_log: torch.Tensor, d: torch.Tensor, dt_bias: torch.Tensor) -> None:
        """The tensors are (heads,)."""
        dtype = working_dtype(a_log.dtype)
        self._spec = spec
        self._rate = a_log.to(dtype).exp()
        self._skip = d.to(dtype).view(spec.num_groups, -1, 1)
        self._dt_bias = dt_bias.to(dtype)

    def __call__(
        self, x: torch.Tensor, beside: torch.Tensor, state: torch.Tensor | None, asked: Sequence[int]
    ) -> Recurred:
        """`beside` is dt before its bias, (batch, tokens, heads); the state (batch, heads * head_dim * state_dim)."""
        spec, num_tokens = self._spec, x.shape[1]
        inputs = self._inputs(x, beside)
        shape = (len(x), spec.num_groups, spec.num_heads // spec.num_groups, spec.head_dim, spec.state_dim)
        now = inputs.added.new_zeros(shape) if state is None else state.view(shape)
        out, states = [], []
        for start in range(0, num_tokens, BLOCK_LEN):
            end = min(start + BLOCK_LEN, num_tokens)
            of_block = [token - start for token in asked if start <= token < end]
            computed = inputs.block(start, end).recurred(now, [*of_block, end - start - 1])
            out.append(computed.out)
            states.append(computed.states[:, :-1])
            now = computed.states[:, -1]
        y = torch.cat(out, dim=1) + inputs.heads * self._skip
        return Recurred(y.flatten(2).to(x.dtype), torch.cat(states, dim=1).flatten(2))

    def _inputs(self, x: torch.Tensor, beside: torch.Tensor) -> "Mamba2Inputs":
        spec, dtype = self._spec, self._rate.dtype
        projected = ACTIVATIONS[spec.activation](x).to(dtype)
        state_width = spec.num_groups * spec.state_dim
        heads, b, c = (
            part.reshape(*part.shape[:2], spec.num_groups, -1)
            for part in projected.tensor_split((spec.width, spec.width + state_width), dim=2)
        )
        heads = heads.view(*heads.shape[:3], -1, spec.head_dim)
        dt = functional.softplus(beside.to(dtype) + self._dt_bias)
        log_decay = (-self._rate * dt).view(heads.shape[:-1])
        return Mamba2Inputs(heads, heads * dt.view(*heads.shape[:-1], 1), log_decay, b, c)


class Mamba2Inputs(NamedTuple):
    """The values that the tokens add to the state, and those by which they read it.

    In shapes t and s are tokens, g groups, r heads of a group, p channels of a head, n values of a channel.  `heads`
    and `added` (which is `heads` times dt) are (batch, t, g, r, p), `log_decay` is (batch, t, g, r), b and c are
    (batch, t, g, n).
    """

    heads: torch.Tensor
    added: torch.Tensor
    log_decay: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor

    def block(self, start: int, end: int) -> "Mamba2Inputs":
        return Mamba2Inputs(*(part[:, start:end] for part in self))

    def recurred(self, state: torch.Tensor, asked: Sequence[int]) -> Recurred:
        """All tokens at once: each reads every earlier token, and the state before the first, (batch, g, r, p, n).

        The output is (batch, t, g, r, p), the states are (batch, asked, g, r, p, n).
        """
        num_tokens, indices = self.added.shape[1], list(asked)
        total = self.log_decay.cumsum(dim=1)
        is_later = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=state.device).triu(1)[..., None, None]
        # From s to t, (batch, t, s, g, r).  The exponential of a later s could overflow.
        decay = (total.unsqueeze(2) - total.unsqueeze(1)).masked_fill(is_later, -torch.inf).exp()
        since_start = total.exp().unsqueeze(-1)
        weights = torch.einsum("btgn,bsgn->btsg", self.c, self.b).unsqueeze(-1) * decay
        out = torch.einsum("btsgr,bsgrp->btgrp", weights, self.added)
        out = out + torch.einsum("btgn,bgrpn->btgrp", self.c, state) * since_start
        remaining = decay[:, indices].unsqueeze(-1) * self.added.unsqueeze(1)
        states = torch.einsum("basgrp,bsgn->bagrpn", remaining, self.b)
        return Recurred(out, states + since_start[:, indices].unsqueeze(-1) * state.unsqueeze(1))
