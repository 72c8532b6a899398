"""The forward of a real model: from batches to tokens, with KV in the engine's pools.

The random number of a token depends only on the seed of the request and the position, so the same logits give the same
token in another batch and after a retraction.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from pathlib import Path

import torch

from swarden.engine_under_test.config import EngineConfig, PoolSpec, least_state_pages, least_windowed_pages
from swarden.engine_under_test.errors import ConfigError
from swarden.engine_under_test.model.checkpoint import load_decoder, model_name
from swarden.engine_under_test.model.decoder import Decoder
from swarden.engine_under_test.model.layers import working_dtype
from swarden.engine_under_test.model.paged import PagedCache, kind_of
from swarden.engine_under_test.model.spec import LayerKind, ModelSpec
from swarden.engine_under_test.ports import Computed, ForwardBatch, ForwardEntry, ForwardFailed, LogitsSpan, SlotLayout
from swarden.engine_under_test.sampling import SamplingParams
from swarden.engine_under_test.units import num_pages

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
BITS = 53  # of a random number: the precision of a float64


@dataclass(frozen=True, slots=True)
class LaunchedForward:
    """One launched pass: the logits that were requested, and the tokens that were sampled."""

    launch: int
    entries: Sequence[ForwardEntry]
    rows: Sequence[tuple[int, int]]  # for each entry, the [begin, end) of its logits
    logits: torch.Tensor
    tokens: torch.Tensor  # (samples,) int64, entry by entry, on the decoder's device


class ModelForward:
    """Runs a decoder over the engine's pages.  A pass is computed when it is launched.

    `model` names the checkpoint of the decoder, for an engine with a peer.
    """

    def __init__(self, decoder: Decoder, model: str = "without a name") -> None:
        self.decoder = decoder
        self.model = model
        self._running: dict[int, LaunchedForward] = {}
        self._failed: dict[int, str] = {}  # by launch, the reason
        self._last: LaunchedForward | None = None  # the next pass may start from its tokens

    @property
    def vocab_size(self) -> int:
        return self.decoder.spec.vocab_size

    def layout(self, pool: PoolSpec) -> SlotLayout:
        """Keys and values, or the states, of every layer of the pool."""
        spec, device = self.decoder.spec, self.decoder.device
        layers = sum(layer.kind is kind_of(pool.window, num_slots=pool.slots) for layer in spec.layers)
        if pool.slots:
            assert spec.recurrence is not None, "the engine has a pool of states, and no layer is recurrent"
            return SlotLayout(working_dtype(self.decoder.dtype), (layers,), (spec.recurrence.state_size,), device)
        return SlotLayout(self.decoder.dtype, (layers, 2), (spec.num_kv_heads, spec.head_dim), device)

    def launch(self, batch: ForwardBatch) -> None:
        """Run a pass.  It fails if the device is out of memory, or if it follows a failed pass."""
        if any(entry.follows in self._failed for entry in batch.entries):
            self._failed[batch.launch] = "it follows a pass that failed"
            return
        try:
            with torch.inference_mode():
                self._last = self._running[batch.launch] = self._run(batch)
        except torch.OutOfMemoryError as error:
            self._failed[batch.launch] = str(error).partition("\n")[0]

    def collect(self, launch: int) -> list[Computed]:
        if launch in self._failed:
            raise ForwardFailed(f"launch {launch}: {self._failed.pop(launch)}")
        running = self._running.pop(launch)
        computed, tokens = [], iter(running.tokens.tolist())
        for entry, (begin, end) in zip(running.entries, running.rows, strict=True):
            # A copy, because a client that keeps a view would keep the logits of the whole pass.
            logits = LogitsSpan(entry.start, running.logits[begin:end].clone()) if _returns(entry) else None
            computed.append(Computed(list(islice(tokens, entry.num_samples)), logits))
        return computed

    def _run(self, batch: ForwardBatch) -> LaunchedForward:
        """One pass over the batch's tokens, in the order of its entries."""
        decoder, device = self.decoder, self.decoder.device
        positions: list[int] = []
        wanted: list[int] = []  # rows of the pass whose logits are needed
        rows: list[tuple[int, int]] = []
        for entry in batch.entries:
            positions.extend(range(entry.start, entry.end))
            count = entry.end - entry.start if _returns(entry) else entry.num_samples
            rows.append((len(wanted), len(wanted) + count))
            wanted.extend(range(len(positions) - count, len(positions)))
        hidden = decoder.hidden(
            self._token_ids(batch),
            torch.tensor(positions, device=device),
            PagedCache(decoder.spec, batch),
            None if len(wanted) == len(positions) else torch.tensor(wanted, dtype=torch.int64, device=device),
        )
        logits = decoder.logits(hidden)
        return LaunchedForward(batch.launch, batch.entries, rows, logits, _sampled(batch.entries, rows, logits))

    def _token_ids(self, batch: ForwardBatch) -> torch.Tensor:
        """The tokens of all entries, (tokens,) int64, including those that a pass in flight samples."""
        flat, following, sources = [], [], []
        last_launch = self._last.launch if self._last else 0
        for entry in batch.entries:
            flat.extend(entry.tokens)
            if entry.follows:
                assert last_launch == entry.follows, f"launch {entry.follows} is followed, the last is {last_launch}"
                following.append(len(flat))
                sources.append(entry.request_id)
                flat.append(0)
        token_ids = torch.tensor(flat, device=self.decoder.device)
        if following:
            assert self._last, "an entry follows a launch, and none was launched"
            ends = accumulate(entry.num_samples for entry in self._last.entries)
            newest = {entry.request_id: end - 1 for entry, end in zip(self._last.entries, ends, strict=True)}
            token_ids[following] = self._last.tokens[[newest[request_id] for request_id in sources]]
        return token_ids


def model_forward(
    config: EngineConfig, directory: Path, *, device: str, dtype: str
) -> tuple[EngineConfig, ModelForward]:
    """The model of a checkpoint, and the configuration that is fitted to it.

    Raises CheckpointError for a checkpoint that is not supported, ConfigError for a configuration that does not fit it.
    """
    decoder = load_decoder(directory, dtype=usable_dtype(dtype), device=usable_device(device))
    fitted_config = fitted(config, decoder.spec, source=f"{directory / 'config.json'}")
    decoder.reserve(fitted_config.max_context_len)
    if config.role == "both":
        return fitted_config, ModelForward(decoder)
    return fitted_config, ModelForward(decoder, model_name(directory))


def usable_dtype(name: str) -> torch.dtype:
    """The dtype of that name; raises ConfigError."""
    if name not in DTYPES:
        raise ConfigError(f"dtype: {name!r} is not one of {', '.join(DTYPES)}")
    return DTYPES[name]


def usable_device(name: str) -> torch.device:
    """The device of that name, which holds tensors."""
    try:
        return torch.empty(1, device=name).device
    except (RuntimeError, AssertionError) as error:  # AssertionError where torch was built without the device
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"device: {name!r} cannot be used ({reason}); want cpu, or cuda on a machine with a GPU"
        ) from error


def fitted(config: EngineConfig, spec: ModelSpec, *, source: str) -> EngineConfig:
    """The configuration with the model's window, at most its context length, and exactly the pools of its layers.

    If the number of windowed pages is not set, it becomes the most that all running requests need, plus one chunk of a
    prompt.  If the number of pages of states is not set, it becomes the most that all running requests need, plus the
    checkpoints of one context. Raises ConfigError, naming `source` and the key, for a value that does not fit the
    model.
    """
    kinds = {layer.kind for layer in spec.layers}
    config = replace(config, max_context_len=min(config.max_context_len, spec.max_context_len))
    if LayerKind.SLIDING not in kinds and config.swa_pages:
        raise ConfigError(f"{source}: sliding_window: no layer has one; remove swa_pages and sliding_window")
    if LayerKind.RECURRENT not in kinds and config.state_pages:
        raise ConfigError(f"{source}: state_pages: no layer is recurrent; remove it")
    if spec.sliding_window is not None and config.sliding_window not in (None, spec.sliding_window):
        raise ConfigError(
            f"{source}: sliding_window: {spec.sliding_window}, but the configuration has {config.sliding_window}; "
            "remove it"
        )
    if LayerKind.FULL in kinds and not config.full_pages:
        raise ConfigError(f"{source}: full_pages: some layers read the whole prefix; set it")
    if LayerKind.RECURRENT in kinds and not config.full_pages:
        raise ConfigError(
            f"{source}: full_pages: states belong to pages of the whole prefix, also where no layer reads these; set it"
        )
    try:
        return replace(
            config,
            full_pages=config.full_pages if kinds != {LayerKind.SLIDING} else 0,
            swa_pages=_swa_pages(config, spec.sliding_window) if LayerKind.SLIDING in kinds else 0,
            sliding_window=spec.sliding_window,
            state_pages=_state_pages(config) if LayerKind.RECURRENT in kinds else 0,
        )
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def _swa_pages(config: EngineConfig, window: int | None) -> int:
    assert window is not None, "a layer is sliding, and the model has no window"
    chunk_len = min(config.chunk_len or config.max_context_len, config.max_context_len)
    least = least_windowed_pages(window, config.page_size, lookahead_tokens=config.lookahead_tokens)
    most = least * config.max_running_requests + num_pages(chunk_len, config.page_size)
    return config.swa_pages or most


def _state_pages(config: EngineConfig) -> int:
    least = least_state_pages(config.page_size, lookahead_tokens=config.lookahead_tokens)
    checkpoints = num_pages(config.max_context_len, config.state_interval) if config.state_interval else 0
    return config.state_pages or least * config.max_running_requests + checkpoints


def _returns(entry: ForwardEntry) -> bool:
    return entry.sampling.return_logits


def _sampled(entries: Sequence[ForwardEntry], rows: Sequence[tuple[int, int]], logits: torch.Tensor) -> torch.Tensor:
    """The tokens after the last `num_samples` positions of each entry, (samples,) int64."""
    last_rows = [
        row for entry, (_, end) in zip(entries, rows, strict=True) for row in range(end - entry.num_samples, end)
    ]
    last = logits if last_rows == [*range(len(logits))] else logits[last_rows]
    tokens, index = last.argmax(-1), 0
    for entry in entries:
        if not entry.sampling.is_greedy:
            seed = entry.request_id if entry.sampling.seed is None else entry.sampling.seed
            for place in range(entry.num_samples):
                draw = uniform(seed, entry.end - entry.num_samples + 1 + place)
                tokens[index + place] = sample(last[index + place], entry.sampling, draw=draw)
        index += entry.num_samples
    return tokens


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends only on the seed and the position, the same on any machine."""
    name = f"{seed}:{position}".encode()
    return (int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") >> (64 - BITS)) / (1 << BITS)


def sample(logits: torch.Tensor, sampling: SamplingParams, *, draw: float) -> torch.Tensor:
    """The next token, () int64, from logits (vocabulary,); `draw` in [0, 1) is the random number.

    Tokens are ordered by likelihood, equal ones by id.  `top_k`, then `top_p` remove tokens, but never the likeliest.
    """
    if sampling.is_greedy:
        return logits.argmax()
    scaled = logits.to(torch.float64) / sampling.temperature
    ordered, ids = torch.sort(scaled, descending=True, stable=True)
    if sampling.top_k is not None:
        ordered = ordered[: sampling.top_k]
    shares = torch.softmax(ordered, dim=-1)
    before = shares.cumsum(-1) - shares
    shares = shares.masked_fill((before >= sampling.top_p) & (before > 0), 0.0)
    sums = shares.cumsum(-1)
    chosen = torch.searchsorted(sums, sums[-1:] * draw, right=True)[0]
    return ids[chosen.clamp(max=int(torch.count_nonzero(shares)) - 1)]
