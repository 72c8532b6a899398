"""The decoder against transformers, and against itself in chunks and batches."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from swarden.engine_under_test.model.attention import attention, visible
from swarden.engine_under_test.model.checkpoint import load_decoder
from swarden.engine_under_test.model.decoder import Decoder, dense_logits, random_decoder
from swarden.engine_under_test.model.files import FULL, SLIDING
from swarden.engine_under_test.model.tiny import LLAMA3, TINY, by_type, tiny_config, tiny_spec, tiny_spec_of_all_kinds
from swarden.engine_under_test.model.weights import random_tensors
from tests.engine_under_test.model.checkpoints import CPU, oracle_logits, some_tokens, write_checkpoint

FLOAT, DOUBLE = torch.float32, torch.float64
YARN = {"rope_type": "yarn", "rope_theta": 500_000.0, "factor": 8.0, "original_max_position_embeddings": 1024}
LINEAR = by_type(sliding_theta=1e4, full_theta=1e6) | {FULL: {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}}

WINDOWED = [family for family, values in TINY.items() if "sliding_window" in values]
RECURRENT_GEMMA_2B = {
    "hidden_size": 80,  # whose root is rounded to bfloat16
    "num_attention_heads": 10,
    "num_key_value_heads": 1,
    "lru_width": None,
    "block_types": ["recurrent", "recurrent", "attention"],
    "num_hidden_layers": 5,
}
SMOLLM2 = {"hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True}


@pytest.fixture(autouse=True)
def _inference_mode():
    with torch.inference_mode():
        yield


def distance_from(model, directory, token_ids):
    """The largest difference between the logits of the checkpoint here and in the oracle."""
    logits = dense_logits(load_decoder(directory, dtype=FLOAT, device=CPU), token_ids)
    return (logits - oracle_logits(model, token_ids)).abs().max().item()


@pytest.mark.parametrize("window", [8, 13])
@pytest.mark.parametrize("family", WINDOWED)
def test_prompt_logits_equal_those_of_transformers(tmp_path, family, window):
    """50 tokens are longer than the window."""
    model = write_checkpoint(tmp_path, family, sliding_window=window)

    assert distance_from(model, tmp_path, some_tokens(50)) < 1e-4


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        pytest.param("gemma3", {"rope_parameters": LINEAR, "final_logit_softcapping": 2.0}, id="stretched-gemma3"),
        pytest.param("gemma3", {"attention_bias": True, "tie_word_embeddings": False}, id="untied-gemma3"),
        pytest.param("gemma2", {"attn_logit_softcapping": 0.5, "hidden_activation": "gelu"}, id="capped-gemma2"),
        pytest.param("gpt-oss", {"rope_parameters": YARN, "num_local_experts": 8}, id="truncating-gpt-oss"),
        pytest.param("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 4}, id="tied-qwen2"),
        pytest.param("qwen3", {"attention_bias": True, "head_dim": 32}, id="biased-qwen3"),
        pytest.param("mistral", {"rope_parameters": LLAMA3, "num_key_value_heads": 1}, id="llama3-mistral"),
        pytest.param("mistral", {"sliding_window": None}, id="full-mistral"),
        pytest.param("cohere2", {"attention_bias": True, "logit_scale": 0.0625}, id="biased-cohere2"),
        pytest.param("olmo3", {"layer_types": [FULL, SLIDING, SLIDING]}, id="full-first-olmo3"),
        pytest.param("llama", {}, id="llama"),
        pytest.param("llama", {"attention_bias": True, "head_dim": 32, "num_key_value_heads": 1}, id="biased-llama"),
        pytest.param("recurrent-gemma", {}, id="recurrent-gemma"),
        pytest.param("recurrent-gemma", RECURRENT_GEMMA_2B, id="recurrent-gemma with the shapes of 2b"),
        pytest.param("recurrent-gemma", {"attention_bias": True, "conv1d_width": 2}, id="biased-recurrent-gemma"),
        pytest.param("bamba", {}, id="bamba"),
        pytest.param("bamba", {"attn_layer_indices": None, "mamba_n_groups": 1, "mamba_d_conv": 2}, id="mamba-only"),
        pytest.param("bamba", {"mamba_conv_bias": False, "mamba_proj_bias": True, "mlp_bias": True}, id="biased-bamba"),
        pytest.param("llama", SMOLLM2 | {"rope_parameters": {"rope_theta": 1e5}}, id="smollm2"),
    ],
)
def test_logits_of_a_changed_config_equal_those_of_transformers(tmp_path, family, changes):
    model = write_checkpoint(tmp_path, family, **changes)

    assert distance_from(model, tmp_path, some_tokens(50)) < 1e-4


@pytest.mark.parametrize("family", ["gemma3", "gpt-oss", "cohere2", "recurrent-gemma", "bamba"])
def test_logits_beyond_the_reserved_context_equal_those_of_transformers(tmp_path, family):
    model = write_checkpoint(tmp_path, family)

    assert distance_from(model, tmp_path, some_tokens(1100)) < 1e-4


# --- planted bugs that the comparison detects


@pytest.mark.parametrize("off_by", [-1, 1])
@pytest.mark.parametrize("family", WINDOWED)
def test_window_off_by_one_is_detected(tmp_path, family, off_by):
    model = write_checkpoint(tmp_path, family)
    edit_config(tmp_path, sliding_window=8 + off_by)

    assert distance_from(model, tmp_path, some_tokens(50)) > 1e-3


@pytest.mark.parametrize("family", ["gemma3", "olmo3"])
def test_swapped_thetas_are_detected(tmp_path, family):
    model = write_checkpoint(tmp_path, family)
    parameters = tiny_config(family)["rope_parameters"]
    edit_config(tmp_path, rope_parameters={SLIDING: parameters[FULL], FULL: parameters[SLIDING]})

    assert distance_from(model, tmp_path, some_tokens(50)) > 1e-3


def test_dropped_sinks_are_detected(tmp_path):
    """Sinks so low that their weight is 0."""
    model = write_checkpoint(tmp_path, "gpt-oss")
    tensors = load_file(tmp_path / "model.safetensors")
    dropped = {name: torch.full_like(tensor, -1e4) for name, tensor in tensors.items() if name.endswith("sinks")}
    save_file(tensors | dropped, tmp_path / "model.safetensors")

    assert len(dropped) == 3
    assert distance_from(model, tmp_path, some_tokens(50)) > 1e-3


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        pytest.param("cohere2", {"rope_interleaved": False}, id="halves rotated instead of neighbours"),
        pytest.param("gemma2", {"attention_softcap": None}, id="no softcap of scores"),
        pytest.param("gemma3", {"embedding_scale": 1.0}, id="embeddings not scaled"),
        pytest.param("qwen2", {"attention_scale": 0.5}, id="another scale"),
    ],
)
def test_changed_field_of_the_spec_changes_the_logits(family, changes):
    spec = tiny_spec(family)
    tensors = random_tensors(spec, 0, DOUBLE)

    logits, changed = (dense_logits(Decoder(one, tensors), some_tokens(50)) for one in (spec, replace(spec, **changes)))

    assert (logits - changed).abs().max() > 1e-3


def edit_config(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# --- the decoder against itself


class GrowingCache:
    """Stores the keys and values of one sequence in each layer, and its last state."""

    def __init__(self, spec):
        self._spec = spec
        self._kept: list[list[tuple[torch.Tensor, torch.Tensor]]] = [[] for _ in spec.layers]
        self._states: list[torch.Tensor | None] = [None for _ in spec.layers]

    def attend(self, layer, q, k, v, scoring):
        self._kept[layer].append((k, v))
        keys, values = (torch.cat(parts).transpose(0, 1)[None] for parts in zip(*self._kept[layer], strict=True))
        positions = torch.arange(keys.shape[2])
        mask = visible(positions[-len(q) :], positions, self._spec.window_of(self._spec.layers[layer].kind))[None, None]
        return attention(q.transpose(0, 1)[None], keys, values, mask=mask, scoring=scoring)[0].transpose(0, 1)

    def recur(self, layer, x, recurrence):
        recurred = recurrence(x[None], self._states[layer], [len(x) - 1])
        self._states[layer] = recurred.states[:, 0]
        return recurred.out[0]


class TwoCaches:
    """The first `length` tokens of a pass are of one sequence, the others of another."""

    def __init__(self, spec, length):
        self._caches = (GrowingCache(spec), GrowingCache(spec))
        self._parts = (slice(length), slice(length, None))

    def attend(self, layer, q, k, v, scoring):
        both = zip(self._caches, self._parts, strict=True)
        return torch.cat([cache.attend(layer, q[part], k[part], v[part], scoring) for cache, part in both])

    def recur(self, layer, x, recurrence):
        both = zip(self._caches, self._parts, strict=True)
        return torch.cat([cache.recur(layer, x[part], recurrence) for cache, part in both])


SPECS = {family: tiny_spec(family) for family in TINY} | {"all kinds": tiny_spec_of_all_kinds()}


@pytest.mark.parametrize("chunk_len", [1, 7, 40])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_logits_of_a_prompt_in_chunks_equal_those_of_the_whole_prompt(spec, chunk_len):
    decoder, token_ids = random_decoder(spec, 0, DOUBLE), some_tokens(40)
    cache = GrowingCache(decoder.spec)

    hidden = [
        decoder.hidden(token_ids[at : at + chunk_len], torch.arange(at, min(at + chunk_len, 40)), cache)
        for at in range(0, 40, chunk_len)
    ]

    logits = decoder.logits(torch.cat(hidden))
    torch.testing.assert_close(logits, dense_logits(decoder, token_ids), rtol=0, atol=1e-11)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_logits_of_two_sequences_in_one_pass_equal_those_alone(spec):
    decoder, first, second = random_decoder(spec, 0, DOUBLE), some_tokens(20), some_tokens(13, seed=1)
    positions = torch.cat((torch.arange(20), torch.arange(13)))

    hidden = decoder.hidden(torch.cat((first, second)), positions, TwoCaches(spec, 20))

    expected = torch.cat((dense_logits(decoder, first), dense_logits(decoder, second)))
    torch.testing.assert_close(decoder.logits(hidden), expected, rtol=0, atol=1e-11)


def logits_in(dtype, family, *, rounded_to=None):
    """The logits of a model in `dtype`, with weights that were rounded to `rounded_to`."""
    tensors = random_tensors(tiny_spec(family), 0, rounded_to or dtype)
    decoder = Decoder(tiny_spec(family), {name: tensor.to(dtype) for name, tensor in tensors.items()})
    return dense_logits(decoder, some_tokens(50))


@pytest.mark.parametrize("family", TINY)
def test_float32_logits_are_near_float64_logits(family):
    single, double = logits_in(FLOAT, family), logits_in(DOUBLE, family, rounded_to=FLOAT)

    assert double.dtype is DOUBLE
    assert (single - double).abs().max() < 1e-4 * double.abs().max()


@pytest.mark.parametrize("family", TINY)
def test_bfloat16_logits_correlate_with_float64_logits(family):
    low, double = logits_in(torch.bfloat16, family), logits_in(DOUBLE, family, rounded_to=torch.bfloat16)

    assert low.dtype is torch.bfloat16
    assert torch.corrcoef(torch.stack((low.double().flatten(), double.flatten())))[0, 1] > 0.9


def test_random_weights_depend_only_on_the_seed():
    spec, token_ids = tiny_spec("gemma3"), some_tokens(20)

    first, again, other = (dense_logits(random_decoder(spec, seed, DOUBLE), token_ids) for seed in (3, 3, 4))

    assert torch.equal(first, again)
    assert (first - other).abs().max() > 0.1


def test_greedy_tokens_of_random_weights_vary():
    """The tokens vary, so a read of a wrong page changes the output."""
    best = dense_logits(random_decoder(tiny_spec("gemma3"), 0, FLOAT), some_tokens(200)).argmax(dim=-1)

    assert len(best.unique()) > 20


def test_position_without_reserved_rotations_raises():
    decoder = random_decoder(tiny_spec("gemma3"), 0, FLOAT)
    token_ids, positions = torch.tensor([5]), torch.tensor([1024])
    with pytest.raises(IndexError):
        decoder.hidden(token_ids, positions, GrowingCache(decoder.spec))

    decoder.reserve(1025)

    assert decoder.hidden(token_ids, positions, GrowingCache(decoder.spec)).shape == (1, 64)
