"""Each recurrence equals its definition, one token after the other, and continues from any state."""

import pytest
import torch
from torch.nn.functional import silu, softplus

from swarden.engine_under_test.model.recurrent import BLOCK_LEN, BlockLinear, Mamba2, Recurrence, RgLru, linear_scan
from swarden.engine_under_test.model.spec import Mamba2Spec, RgLruSpec

DOUBLE = torch.float64
TAPS = 4
GRIFFIN = RgLruSpec(width=12, num_blocks=3, conv_len=TAPS, activation="gelu")
MAMBA = Mamba2Spec(
    num_heads=4, head_dim=3, num_groups=2, state_dim=5, conv_len=TAPS, activation="silu", projection_bias=True
)
NUM_TOKENS = 2 * BLOCK_LEN + 9


def drawn(*shape, seed=0, mean=0.0):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed)) + mean


def convolution(channels) -> tuple[torch.Tensor, torch.Tensor]:
    return drawn(channels, 1, TAPS, seed=1), drawn(channels, seed=2)


def griffin_gates():
    return [BlockLinear(drawn(3, 4, 4, seed=seed), drawn(3, 4, seed=seed + 1)) for seed in (3, 5)]


def griffin():
    return Recurrence(*convolution(GRIFFIN.conv_width), core=RgLru(drawn(12, seed=7, mean=-3.0), *griffin_gates()))


def mamba():
    core = Mamba2(MAMBA, drawn(4, seed=3, mean=-3.0), drawn(4, seed=4), drawn(4, seed=5))
    return Recurrence(*convolution(MAMBA.conv_width), core=core)


CASES = {
    "griffin": (griffin(), GRIFFIN.conv_width, GRIFFIN.state_size),
    "mamba": (mamba(), MAMBA.conv_width + MAMBA.num_heads, MAMBA.state_size),
}
by_case = pytest.mark.parametrize(("recurrence", "inputs", "state_size"), CASES.values(), ids=CASES)


def convolved(x, token):
    """The convolution at one token of x, (tokens, channels)."""
    weight, bias = convolution(x.shape[1])
    taps = [x[token - back] * weight[:, 0, TAPS - 1 - back] for back in range(TAPS) if back <= token]
    return torch.stack(taps).sum(0) + bias


def griffin_by_definition(x):
    """Griffin, arXiv 2402.19427, equations 1 to 4; at the first token the input is not scaled."""
    (w_i, b_i), (w_a, b_a) = griffin_gates()
    h, out = torch.zeros(12, dtype=DOUBLE), []
    for token in range(len(x)):
        u = convolved(x, token)
        i = (torch.einsum("bi,bij->bj", u.view(3, 4), w_i) + b_i).sigmoid().flatten()
        r = (torch.einsum("bi,bij->bj", u.view(3, 4), w_a) + b_a).sigmoid().flatten()
        a = torch.exp(-8 * softplus(drawn(12, seed=7, mean=-3.0)) * r)
        h = a * h + (torch.sqrt(1 - a**2) if token else 1.0) * i * u
        out.append(h)
    return torch.stack(out)


def mamba_by_definition(x):
    """Mamba 2, arXiv 2405.21060, equation 1, with the step size of Mamba."""
    a, d, dt_bias = -drawn(4, seed=3, mean=-3.0).exp(), drawn(4, seed=4), drawn(4, seed=5)
    state, out = torch.zeros(4, 3, 5, dtype=DOUBLE), []
    for token in range(len(x)):
        u = silu(convolved(x[:, : MAMBA.conv_width], token))
        heads, b, c = u[:12].view(4, 3), u[12:22].view(2, 5), u[22:].view(2, 5)
        dt = softplus(x[token, MAMBA.conv_width :] + dt_bias)
        y = torch.empty(4, 3, dtype=DOUBLE)
        for head in range(4):
            state[head] = torch.exp(a[head] * dt[head]) * state[head] + dt[head] * torch.outer(
                heads[head], b[head // 2]
            )
            y[head] = state[head] @ c[head // 2] + d[head] * heads[head]
        out.append(y.flatten())
    return torch.stack(out)


@pytest.mark.parametrize(
    ("case", "definition"), [("griffin", griffin_by_definition), ("mamba", mamba_by_definition)], ids=CASES
)
def test_recurrence_equals_its_definition(case, definition):
    recurrence, inputs, _ = CASES[case]
    x = drawn(NUM_TOKENS, inputs, seed=9)

    out = recurrence(x[None], None, ()).out[0]

    # 1 - a² loses digits in the definition.
    torch.testing.assert_close(out, definition(x), rtol=0, atol=1e-9)


@by_case
def test_outputs_after_any_asked_token_equal_those_of_the_whole_sequence(recurrence, inputs, state_size):
    x = drawn(2, NUM_TOKENS, inputs, seed=9)
    asked = [0, 1, 5, BLOCK_LEN - 1, BLOCK_LEN, NUM_TOKENS - 2]

    whole, states = recurrence(x, None, asked)

    assert states.shape == (2, len(asked), state_size)
    for index, token in enumerate(asked):
        rest = recurrence(x[:, token + 1 :], states[:, index], ()).out
        torch.testing.assert_close(rest, whole[:, token + 1 :], rtol=0, atol=1e-11)


@by_case
def test_recurrence_changes_neither_its_input_nor_its_state(recurrence, inputs, state_size):
    x, state = drawn(2, 7, inputs, seed=9), drawn(2, state_size, seed=10)
    before = x.clone(), state.clone()

    recurrence(x, state, [6])

    assert torch.equal(x, before[0])
    assert torch.equal(state, before[1])


def test_states_of_a_model_in_bfloat16_are_in_float32():
    gates = [BlockLinear(torch.ones(3, 4, 4).bfloat16(), torch.ones(3, 4).bfloat16()) for _ in range(2)]
    core = RgLru(torch.ones(12).bfloat16(), *gates)
    recurrence = Recurrence(torch.ones(12, 1, TAPS).bfloat16(), None, core)

    out, states = recurrence(drawn(1, 3, 12).bfloat16(), None, [2])

    assert (out.dtype, states.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 8, 37])
def test_linear_scan_equals_the_loop(num_tokens):
    decay, added = drawn(2, num_tokens, 3).sigmoid(), drawn(2, num_tokens, 3, seed=1)
    h, expected = torch.zeros(2, 3, dtype=DOUBLE), []
    for token in range(num_tokens):
        h = decay[:, token] * h + added[:, token]
        expected.append(h)

    torch.testing.assert_close(linear_scan(decay, added), torch.stack(expected, dim=1), rtol=0, atol=1e-12)
