"""Reads the layer kinds and the recurrences of a config.json with recurrent layers."""

from reprlib import repr as shortened

from swarden.engine_under_test.limits import MAX_CONV_LEN, MAX_HEAD_DIM, MAX_HEADS, MAX_STATE_SIZE
from swarden.engine_under_test.model.config_file import ConfigFile
from swarden.engine_under_test.model.layers import ACTIVATIONS
from swarden.engine_under_test.model.spec import LayerKind, Mamba2Spec, RgLruSpec

BLOCK_KINDS = {"recurrent": LayerKind.RECURRENT, "attention": LayerKind.SLIDING}
MOST_REPETITIONS = 100  # of the list of blocks, by transformers


def recurrent_gemma_kinds(config: ConfigFile, num_layers: int) -> list[LayerKind]:
    """The kinds of the layers of a RecurrentGemma: the listed blocks, repeated."""
    listed = config.items("block_types", what=" or ".join(BLOCK_KINDS))
    if not listed or not all(isinstance(one, str) and one in BLOCK_KINDS for one in listed):
        raise config.refusal("block_types", f"is {shortened(listed)}; want a list of {' or '.join(BLOCK_KINDS)}")
    if num_layers > MOST_REPETITIONS * len(listed):
        raise config.refusal(
            "block_types",
            f"has {len(listed)} entries; want enough for {num_layers} layers, each at most {MOST_REPETITIONS} times",
        )
    return [BLOCK_KINDS[listed[index % len(listed)]] for index in range(num_layers)]


def bamba_kinds(config: ConfigFile, num_layers: int) -> list[LayerKind]:
    """The kinds of the layers of a Bamba: attention in the listed ones, a recurrence in the others."""
    listed = config.items("attn_layer_indices", what="layers") if "attn_layer_indices" in config else []
    if not all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < num_layers for one in listed):
        raise config.refusal(
            "attn_layer_indices", f"is {shortened(listed)}; want a list of integers from 0 to {num_layers - 1}"
        )
    attention = frozenset(listed)
    return [LayerKind.FULL if index in attention else LayerKind.RECURRENT for index in range(num_layers)]


def rg_lru_of(config: ConfigFile) -> RgLruSpec:
    """The recurrence of a RecurrentGemma; raises CheckpointError."""
    num_blocks = config.count("num_attention_heads", most=MAX_HEADS)
    key = "lru_width" if "lru_width" in config else "hidden_size"
    width = config.count(key)
    if width % num_blocks:
        raise config.refusal(key, f"is {width}; want a multiple of num_attention_heads, {num_blocks}")
    spec = RgLruSpec(width, num_blocks, _conv_len(config, "conv1d_width"), _activation(config, "hidden_activation"))
    _check_state(config, "conv1d_width", spec)
    return spec


def mamba2_of(config: ConfigFile) -> Mamba2Spec:
    """The recurrence of a Bamba; raises CheckpointError."""
    num_heads, num_groups = config.count("mamba_n_heads", most=MAX_HEADS), config.count("mamba_n_groups")
    width = config.count("mamba_expand") * config.count("hidden_size")
    if width % num_heads:
        raise config.refusal("mamba_n_heads", f"is {num_heads}; want a divisor of mamba_expand * hidden_size, {width}")
    head_dim = width // num_heads
    if config.raw("mamba_d_head") not in ("auto", head_dim):
        raise config.refusal(
            "mamba_d_head",
            f"is {shortened(config.raw('mamba_d_head'))}; want {head_dim}, mamba_expand * hidden_size / mamba_n_heads",
        )
    if num_heads % num_groups:
        raise config.refusal("mamba_n_groups", f"is {num_groups}; want a divisor of {num_heads} heads")
    spec = Mamba2Spec(
        num_heads=num_heads,
        head_dim=head_dim,
        num_groups=num_groups,
        state_dim=config.count("mamba_d_state", most=MAX_HEAD_DIM),
        conv_len=_conv_len(config, "mamba_d_conv"),
        activation=_activation(config, "hidden_act"),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        projection_bias=config.flag("mamba_proj_bias", default=False),
    )
    _check_state(config, "mamba_d_state", spec)
    return spec


def _conv_len(config: ConfigFile, key: str) -> int:
    return config.count(key, least=2, most=MAX_CONV_LEN)


def _activation(config: ConfigFile, key: str) -> str:
    return config.choice(key, ACTIVATIONS)


def _check_state(config: ConfigFile, key: str, spec: RgLruSpec | Mamba2Spec) -> None:
    if spec.state_size > MAX_STATE_SIZE:
        raise config.refusal(
            key, f"makes a state of {spec.state_size} values in each layer; want at most {MAX_STATE_SIZE}"
        )
