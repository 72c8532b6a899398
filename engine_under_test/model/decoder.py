"""The decoder: from token ids and positions to logits.  The caller stores the keys, the values and the states."""

import torch
from torch.nn import functional

from swarden.engine_under_test.model.layers import ExpertWeights, GatedMlp, Linear, MixtureOfExperts, rotation_table
from swarden.engine_under_test.model.mixers import LayerCache, LayerTensors, Tensors, make_mixer, make_norm
from swarden.engine_under_test.model.spec import ModelSpec, NormPlacement
from swarden.engine_under_test.model.weights import EMBEDDING, HEAD, names_of, random_tensors

MIN_CONTEXT_LEN = 1024  # rotations that every decoder has; `reserve` adds more


class Decoder:
    """A decoder of any of the families, on one device, in one dtype; the caller sets torch's inference mode."""

    def __init__(self, spec: ModelSpec, tensors: Tensors) -> None:
        """`tensors` are those of `weights.tensor_shapes(spec)`, all of one dtype and on one device."""
        self.spec = spec
        self._embedding = tensors[EMBEDDING]
        self._head = tensors[EMBEDDING if spec.tied_embeddings else HEAD]
        self._norm = make_norm(tensors[names_of(spec).final_norm], spec)
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
        self, token_ids: torch.Tensor, positions: torch.Tensor, cache: LayerCache, rows: torch.Tensor | None = None
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
            x = layer(x, None if rope is None else rotations[rope], cache, rows if layer is last else None)
        return self._norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The logits, (m, vocab_size), of m hidden states."""
        logits = functional.linear(hidden, self._head)
        if self.spec.logit_scale != 1.0:
            logits = logits.mul_(self.spec.logit_scale)
        if self.spec.final_softcap is not None:
            logits = logits.div_(self.spec.final_softcap).tanh_().mul_(self.spec.final_softcap)
        return logits


def random_decoder(spec: ModelSpec, seed: int, dtype: torch.dtype, device: str | torch.device = "cpu") -> Decoder:
    """A decoder with random weights, which the seed determines: they are the same on every device."""
    return Decoder(spec, {name: tensor.to(device) for name, tensor in random_tensors(spec, seed, dtype).items()})


# --- a layer


def make_mlp(tensors: LayerTensors) -> GatedMlp | MixtureOfExperts:
    mlp, has_bias = tensors.names.mlp, tensors.spec.mlp.bias
    if tensors.spec.mlp.num_experts:
        router = Linear(tensors[f"{mlp}.router.weight"], tensors[f"{mlp}.router.bias"])
        # In checkpoints the columns of gate and up alternate.
        gate_up, bias = (
            torch.cat((stored[..., ::2], stored[..., 1::2]), dim=-1)
            for stored in (tensors[f"{mlp}.experts.gate_up_proj"], tensors[f"{mlp}.experts.gate_up_proj_bias"])
        )
        down = (tensors[f"{mlp}.experts.down_proj"], tensors[f"{mlp}.experts.down_proj_bias"])
        return MixtureOfExperts(tensors.spec.mlp, ExpertWeights(router, gate_up, bias, *down))
    gate_and_up = tensors.linear(f"{mlp}.gate_proj", f"{mlp}.up_proj", has_bias=has_bias)
    return GatedMlp(tensors.spec.mlp, gate_and_up, tensors.linear(f"{mlp}.down_proj", has_bias=has_bias))


class DecoderLayer:
    """A mixer, then an MLP, or both in parallel; each adds to the residual stream."""

    def __init__(self, tensors: LayerTensors) -> None:
        norms = tensors.names.norms
        self._mixer = make_mixer(tensors)
        self._mlp = make_mlp(tensors)
        self._parallel = tensors.spec.norm_placement is NormPlacement.PARALLEL
        self._before_mixer = tensors.norm(norms.before_mixer)
        self._after_mixer = tensors.norm(norms.after_mixer)
        self._before_mlp = tensors.norm(norms.before_mlp)
        self._after_mlp = tensors.norm(norms.after_mlp)

    def __call__(
        self, x: torch.Tensor, rotations: torch.Tensor | None, cache: LayerCache, rows: torch.Tensor | None
    ) -> torch.Tensor:
        """x and the result are (n, hidden_size); in the last layer the result may be of `rows` only."""
        normed = self._before_mixer(x) if self._before_mixer else x
        mixed = self._mixer(normed, rotations, cache, rows)
        if rows is not None:
            x, normed = x[rows], normed[rows]
        if self._parallel:
            return mixed.add_(x).add_(self._mlp(normed))
        if self._after_mixer:
            mixed = self._after_mixer(mixed)
        x = mixed.add_(x)
        computed = self._mlp(self._before_mlp(x) if self._before_mlp else x)
        if self._after_mlp:
            computed = self._after_mlp(computed)
        return computed.add_(x)
