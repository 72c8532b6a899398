"""A decoder as data.  Model families differ in these fields only."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class NormKind(StrEnum):
    """RMS divides by the root mean square; LAYER normalizes by mean and variance, without a bias."""

    RMS = "rms"
    LAYER = "layer"


class NormPlacement(StrEnum):
    """Where the norms of a sublayer are; PARALLEL has one norm, whose output both attention and MLP read."""

    BEFORE = "before"
    AROUND = "around"
    AFTER = "after"
    PARALLEL = "parallel"


class QKNorm(StrEnum):
    """The norm of q and k before the rotation: none, over each head, or over all heads at once."""

    NONE = "none"
    HEAD = "head"
    PROJECTION = "projection"


class LayerKind(StrEnum):
    """How a layer mixes tokens: attention to the whole prefix, attention to a window, or a recurrence."""

    FULL = "full"
    SLIDING = "sliding"
    RECURRENT = "recurrent"


class RopeSpec(NamedTuple):
    """One rotary embedding.  Fields that its type does not use keep their defaults.

    Source: arXiv 2104.09864 (default), 2306.15595 (linear), 2309.00071 (yarn); llama3 as Llama 3.1 published it.
    """

    theta: float
    rope_type: str = "default"
    factor: float = 1.0  # stretches positions
    attention_factor: float = 1.0  # scales the rotated vectors
    original_len: int = 0  # the context length in tokens that a stretched model was first trained on
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    rotated_share: float = 1.0  # of each head, from its first dimension

    def rotated_dim(self, head_dim: int) -> int:
        """The number of rotated dimensions of a head."""
        return int(head_dim * self.rotated_share)


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer: its kind, and its rotary embedding (None: it has none)."""

    index: int
    kind: LayerKind
    rope: RopeSpec | None


class RgLruSpec(NamedTuple):
    """A real-gated linear recurrent unit behind a causal convolution, as in Griffin (arXiv 2402.19427, section 2.4)."""

    width: int  # channels
    num_blocks: int  # on the diagonal of the matrices of its gates
    conv_len: int  # taps of the convolution
    activation: str  # of the other branch

    @property
    def conv_width(self) -> int:
        """The number of channels of the convolution."""
        return self.width

    @property
    def state_size(self) -> int:
        """The number of values of a layer's state: the last inputs of the convolution, and one for each channel."""
        return self.conv_len * self.width


class Mamba2Spec(NamedTuple):
    """A selective state space with a scalar decay for each head, as in Mamba 2 (arXiv 2405.21060)."""

    num_heads: int
    head_dim: int  # channels of a head
    num_groups: int  # of heads with the same input and output projections of their state
    state_dim: int  # values of a channel
    conv_len: int  # taps of the convolution, which the activation follows
    activation: str
    conv_bias: bool = True
    projection_bias: bool = False

    @property
    def width(self) -> int:
        """The number of channels of all heads."""
        return self.num_heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """The number of channels of the convolution: the heads' input, and both projections of the state."""
        return self.width + 2 * self.num_groups * self.state_dim

    @property
    def state_size(self) -> int:
        """The number of values of a layer's state: the last inputs of the convolution, and the heads' states."""
        return (self.conv_len - 1) * self.conv_width + self.width * self.state_dim


class MlpSpec(NamedTuple):
    """One gated MLP, or `num_experts` of them, of which each token uses `experts_per_token`."""

    activation: str
    intermediate_size: int
    num_experts: int = 0
    experts_per_token: int = 0
    limit: float = 7.0  # at which experts clamp both halves
    alpha: float = 1.702  # the gate of experts is sigmoid(alpha x)
    bias: bool = False  # of a single MLP; experts always have biases


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder's shape and semantics, read from a checkpoint's config.json."""

    architecture: str
    vocab_size: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layers: tuple[LayerSpec, ...]
    sliding_window: int | None  # tokens that a position of a sliding layer sees, itself included; None: no layer slides
    max_context_len: int
    mlp: MlpSpec
    attention_scale: float
    norm_eps: float
    recurrence: RgLruSpec | Mamba2Spec | None = None  # of every recurrent layer
    attention_softcap: float | None = None  # None: there is none
    final_softcap: float | None = None
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    has_sinks: bool = False
    norm_kind: NormKind = NormKind.RMS
    norm_placement: NormPlacement = NormPlacement.BEFORE
    one_plus_weight: bool = False  # a norm multiplies by 1 + its weight
    qk_norm: QKNorm = QKNorm.NONE
    qkv_bias: bool = False
    output_bias: bool = False
    rope_interleaved: bool = False  # pairs of neighbours are rotated, not pairs across two halves
    tied_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def ropes(self) -> tuple[RopeSpec, ...]:
        """The distinct rotary embeddings, in the order in which layers first use them."""
        return tuple(dict.fromkeys(layer.rope for layer in self.layers if layer.rope is not None))

    def window_of(self, kind: LayerKind) -> int | None:
        """The tokens that a position of an attention layer of `kind` sees, itself included; None for all."""
        return self.sliding_window if kind is LayerKind.SLIDING else None
