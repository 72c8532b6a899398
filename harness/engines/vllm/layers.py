"""The groups of layers of a model, and the limits of their settings."""

from typing import Annotated, NamedTuple

import msgspec

from swarden.harness.kit.settings import within

POOL = "blocks"
WAITS_FOR_LOAD = "WAITING_FOR_REMOTE_KVS"  # the status of a request
MAX_BLOCKS, MAX_CONTEXT_LEN = 1 << 22, 1 << 20
MAX_WINDOWS = 8
NONE, ALL, ALIGN = "none", "all", "align"  # mamba_cache_mode

BlockSize = Annotated[int, within(1, 256)]
Window = Annotated[int, within(1, 65536)]
Windows = msgspec.Meta(max_length=MAX_WINDOWS)


class LayerGroup(NamedTuple):
    """A group of layers: the tokens that one sees (None: all), the tokens of a block, and whether it has states."""

    window: int | None
    block_len: int
    has_states: bool = False
