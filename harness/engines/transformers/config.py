"""The configuration of continuous batching, its draws and its limits; imports nothing of transformers."""

from collections.abc import Sequence
from typing import Annotated

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Draw, Pool, Shape
from swarden.harness.kit.settings import Drawn, Needs, OneOf, PartOf, Settings, drawn, within

FULL, SLIDING = "full_attention", "sliding_attention"
FIFO, PREFILL_FIRST = "fifo", "prefill_first"
MAX_BLOCKS, MAX_SLOTS = 1 << 16, 1 << 22
LEAST_PAGE = 4  # the releases accept no smaller blocks


class TransformersConfig(Settings, frozen=True):
    """One batch processor and its cache. Lengths are in tokens; a window counts the token itself.

    `num_blocks` and `cpu_blocks` (cpu_offload_space) are blocks of all layers; the cache is rounded up to sectors.
    `sliding_layers` have the `window`, and a ring as their cache.  `chunk_len` is max_batch_tokens, the number of
    running requests max_requests_per_batch, `decode_blocks` max_blocks_per_request (0: no decode fast path with block
    tables).  `safety_margin` None is the default of the scheduler.  A request has at most `max_context_len` tokens, and
    with `checks_length` no more than an empty cache holds: the releases have no such limits.  A `persistent_manager`
    serves several calls of generate_batch: the next call begins when all requests before it have ended.
    """

    page_size: Annotated[int, within(LEAST_PAGE, 256), Drawn((4, 4, 8))] = 4
    num_blocks: Annotated[int, within(1, MAX_BLOCKS)] = 32
    full_layers: Annotated[int, within(0, 8), Drawn((1, 1, 2, 0))] = 1
    sliding_layers: Annotated[int, within(0, 8), Drawn((0, 0, 1, 2, 3))] = 0
    window: Annotated[int, within(2, 4096), PartOf("sliding_layers"), Drawn((6, 4, 5, 8, 11))] = 6
    sliding_first: Annotated[bool, PartOf("sliding_layers"), Drawn((False, True))] = False
    max_running_requests: Annotated[int, within(1, 1024), Drawn((4, 2, 3, 6))] = 4
    max_context_len: Annotated[int, within(2, 1 << 16), Drawn((64, 48, 96))] = 96
    chunk_len: Annotated[int, within(1, 65536), Drawn((8, 4, 16, 32))] = 16
    scheduler: Annotated[str, OneOf((FIFO, PREFILL_FIRST)), Drawn((FIFO, PREFILL_FIRST))] = FIFO
    safety_margin: Annotated[float, within(0, 1)] | None = None
    block_sharing: Annotated[bool, Drawn((True, True, True, False))] = True
    asynchronous: Annotated[bool, Drawn((False, True))] = False
    decode_blocks: Annotated[int, within(0, 1024), Drawn((0, 0, 4, 32))] = 0
    cpu_blocks: Annotated[int, within(0, MAX_BLOCKS), Drawn((0, 0, 4, 16))] = 0
    checks_length: bool = True
    persistent_manager: bool = False

    main = ("page_size", "num_blocks", "sliding_layers", "chunk_len", "asynchronous")
    needs = (Needs("decode_blocks", {"sliding_layers": (0,)}),)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.full_layers + self.sliding_layers:
            raise InvalidConfig("full_layers and sliding_layers are 0, want a layer")
        if self.chunk_len < self.max_running_requests:
            raise InvalidConfig(f"chunk_len is {self.chunk_len}, want at least max_running_requests")
        if (self.num_blocks + self.cpu_blocks) * self.page_size * self.num_layers > MAX_SLOTS:
            raise InvalidConfig(f"num_blocks and cpu_blocks have more than {MAX_SLOTS} slots; make them smaller")

    @property
    def num_layers(self) -> int:
        return self.full_layers + self.sliding_layers

    @property
    def layer_types(self) -> list[str]:
        """The type of each layer; the groups of layers are in the order of their first layers."""
        types = [FULL] * self.full_layers + [SLIDING] * self.sliding_layers
        return types[::-1] if self.sliding_first else types

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The window of each group of layers."""
        return tuple([self.window if name == SLIDING else None for name in dict.fromkeys(self.layer_types)])

    @property
    def shares_prefixes(self) -> bool:
        return self.block_sharing and not self.sliding_layers

    @property
    def shape(self) -> Shape:
        pools: Sequence[Pool] = [Pool("blocks", self.num_blocks, window) for window in self.windows]
        sizes = (self.page_size, pools, self.chunk_len, self.max_running_requests, self.max_context_len)
        return Shape(*sizes, options=("sequences",))


def random_config(draw: Draw) -> TransformersConfig:
    """A configuration with a small cache."""
    values = drawn(draw, TransformersConfig)
    if not values["full_layers"] + values["sliding_layers"]:
        values["full_layers"] = 1
    if values["sliding_layers"]:
        values["decode_blocks"] = 0
    values["chunk_len"] = max(values["chunk_len"], values["max_running_requests"])
    least = -(-values["max_context_len"] // values["page_size"])
    values["num_blocks"] = least + draw.one_of((0, 1, 2, 4, 8, 16))
    values["safety_margin"] = draw.one_of((None, None, 0.0, 0.5))
    values["persistent_manager"] = draw.one_of((False, False, True))
    return TransformersConfig(**values)
