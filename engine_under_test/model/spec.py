"""A decoder as data.  Model families differ in these fields only."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class NormKind(StrEnum):
    """RMS divides by the root mean square; LAYER normalizes by mean and variance, without a bias."""

    RMS = "rms"
    LAYER = "layer"


class NormPlacement(StrEnum):
    """Where the norms of a sublayer are: on its input, its output, or both.

    PARALLEL has one norm, whose output both attention and MLP read.
    """

    BEFORE = "before"
    AROUND = "around"
    AFTER = "after"
    PARALLEL = "parallel"


class QKNorm(StrEnum):
    """The norm of q and k before the rotation: none, over each head, or over all heads at once."""

    NONE = "none"
    HEAD = "head"
    PROJECTION = "projection"


class RopeSpec(NamedTuple):
    """One rotary embedding.  Fields that its type does not use keep their defaults.

    `factor` stretches positions, `attention_factor` scales the rotated vectors.  `original_len` is the context length
    in tokens that a stretched model was first trained on.
    Source: arXiv 2104.09864 (default), 2306.15595 (linear), 2309.00071 (yarn); llama3 as Llama 3.1 published it.
    """

    theta: float
    rope_type: str = "default"
    factor: float = 1.0
    attention_factor: float = 1.0
    original_len: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer: whether it sees a window or the whole prefix, and its rotary embedding (None: none)."""

    index: int
    is_sliding: bool
    rope: RopeSpec | None


class MlpSpec(NamedTuple):
    """One gated MLP, or `num_experts` of them, of which each token uses `experts_per_token`.

    Experts clamp both halves at `limit`, and their gate is sigmoid(`alpha` x).
    """

    activation: str
    intermediate_size: int
    num_experts: int = 0
    experts_per_token: int = 0
    limit: float = 7.0
    alpha: float = 1.702


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder's shape and semantics, read from a checkpoint's config.json.

    `sliding_window` counts the tokens that a position of a sliding layer sees, itself included (as in Hugging Face
    configurations); None where no layer slides.  A softcap is None where there is none.  `one_plus_weight`: a norm
    multiplies by 1 + its weight.  `rope_interleaved`: pairs of neighbours are rotated, not pairs across two halves.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    layers: tuple[LayerSpec, ...]
    sliding_window: int | None
    max_context_len: int
    mlp: MlpSpec
    attention_scale: float
    norm_eps: float
    attention_softcap: float | None = None
    final_softcap: float | None = None
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    has_sinks: bool = False
    norm_kind: NormKind = NormKind.RMS
    norm_placement: NormPlacement = NormPlacement.BEFORE
    one_plus_weight: bool = False
    qk_norm: QKNorm = QKNorm.NONE
    qkv_bias: bool = False
    output_bias: bool = False
    rope_interleaved: bool = False
    tied_embeddings: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def ropes(self) -> tuple[RopeSpec, ...]:
        """The distinct rotary embeddings, in the order in which layers first use them."""
        return tuple(dict.fromkeys(layer.rope for layer in self.layers if layer.rope is not None))
