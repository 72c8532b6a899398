"""Kernels of recurrent layers with drafts: a request goes on from the state behind its last accepted token."""

import pytest

torch = pytest.importorskip("torch")

from swarden.harness.engines.vllm_cpu.kernels import (  # noqa: E402
    convolution_with_drafts,
    keep_states,
    move_states,
    scan_with_drafts,
)

WIDTH, CHANNELS, DRAFTS = 3, 2, 3  # of a convolution
BLOCK = 4  # tokens


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def layout(tables, states, *, width):
    """As the kernels get it, for one state of one layer."""
    sizes = (
        states.data_ptr(),
        states[0].numel() * 4,
        4,
        states[0, 0].numel() if width else states[0].numel(),
        width,
        0,
    )
    return [torch.tensor([tables.data_ptr()]), tables.stride(0), *[torch.tensor([size]) for size in sizes], None, None]


def test_convolution_goes_on_behind_the_accepted_drafts():
    torch.manual_seed(1)
    tokens, weight = torch.randn(9, CHANNELS), torch.randn(CHANNELS, WIDTH)
    whole = torch.conv1d(torch.nn.functional.pad(tokens.T, (WIDTH - 1, 0))[None], weight[:, None], groups=CHANNELS)[0].T
    kept = torch.zeros(2, CHANNELS, WIDTH - 1 + DRAFTS)
    update = convolution_with_drafts(torch, torch.conv1d)
    places = {"conv_state_indices": ints([1, 0, 0, 0]), "activation": None}

    outputs, accepted = [], 1
    for start, end, rejected in ((0, 4, 2), (2, 5, 0), (5, 9, 0)):
        read = tokens[start:end].clone()
        read[len(read) - rejected :] = 7.0
        spans = {"query_start_loc": ints(0, end - start), "num_accepted_tokens": ints(accepted)}
        computed = update(read, kept, weight, None, **places, **spans)
        accepted = end - start - rejected
        outputs.append(computed[:accepted])

    assert torch.allclose(torch.cat(outputs), whole, atol=1e-6)
    assert not kept[0].any()


def test_scan_keeps_the_state_behind_each_draft():
    state = torch.zeros(9, 1)
    outputs, inputs = torch.zeros(5), torch.tensor([1.0, 2, 4, 8, 16])
    state[3], state[5] = 100, 1000  # behind the second token of the first request, the first one of the other

    def one_token(state, inputs, *_, **named):
        places = named["state_batch_indices"].long()
        state[places] += inputs[:, None]
        named["out"].copy_(state[places, 0])

    update = scan_with_drafts(torch, one_token)
    places = ints([2, 3, 4], [5, 6, 7])
    named = {"state_batch_indices": places, "dst_state_batch_indices": places, "out": outputs}
    update(
        state, inputs, inputs, None, inputs, inputs, **named, num_accepted_tokens=ints(2, 1), cu_seqlens=ints(0, 3, 5)
    )

    assert state[:, 0].tolist() == [0, 0, 101, 103, 107, 1008, 1024, 0, 0]
    assert outputs.tolist() == [101, 103, 107, 1008, 1024]


@pytest.mark.parametrize(("width", "source"), [(0, 6), (3, 5)], ids=["state", "convolution"])
def test_running_state_moves_with_its_accepted_drafts(width, source):
    tables, states = ints([4, 5, 6, 7], [0, 0, 0, 0]), torch.arange(8 * 6.0).view(8, 3, 2)

    before = states.clone()
    move_states(ints(3, 2), ints(1, -1), ints(1, 0), *layout(tables, states, width=width), None, 2, COPY_BLOCK_SIZE=1)

    moved = before[source][1:] if width else before[source]
    assert torch.equal(states[7][: len(moved)], moved)
    assert torch.equal(states[:7], before[:7])


def test_state_at_the_end_of_a_block_is_kept_there():
    tables, states = ints([1, 2, 3, 4, 5]), torch.arange(6.0).view(6, 1, 1)
    accepted = ints(3)

    first = (accepted, ints(1), ints(3), ints(6), ints(2))  # 6 tokens are computed, then 3, of which 2 are drafts
    keep_states(*first, *layout(tables, states, width=0), accepted, None, 1, block_size=BLOCK)

    assert (states[2].item(), accepted.item()) == (3, 1)  # the state behind the eighth token
