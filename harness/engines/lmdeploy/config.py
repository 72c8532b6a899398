"""The configuration of an engine, its draws and its limits; imports nothing of lmdeploy."""

from typing import Annotated

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.target import Draw, Pool, Shape
from swarden.harness.kit.settings import Drawn, Needs, PartOf, Settings, drawn, within

MAX_BLOCKS = 1 << 16
BLOCKS, STATES = "blocks", "states"  # the pools
RESERVED_STATES = 2  # the releases have more states than running requests: one for padding, and a spare one


class LmdeployConfig(Settings, frozen=True):
    """One engine. Lengths are in tokens; a window counts the token itself.

    `num_blocks` is num_gpu_blocks without the reserved one, `max_running_requests` is max_batch_size, `max_context_len`
    is session_len, `chunk_len` is max_prefill_token_num.  A `window` is that of all layers; with `states` the model has
    recurrent layers, too.  `state_budget` is prefix_cache_state_budget, `state_blocks` is
    prefix_cache_decode_state_interval in blocks (0: no checkpoints of decodes).  The engine allocates
    `prefill_interval` tokens ahead; servers have blocks of at least as many.
    """

    page_size: Annotated[int, within(1, 256), Drawn((4, 4, 8))] = 4
    num_blocks: Annotated[int, within(1, MAX_BLOCKS)] = 32
    window: Annotated[int, within(2, 4096)] | None = None
    states: Annotated[bool, Drawn((False, False, True))] = False
    state_budget: Annotated[int, within(0, 4096), PartOf("states"), Drawn((2, 0, 1, 4))] = 0
    state_blocks: Annotated[int, within(0, 256), PartOf("states"), Drawn((0, 1, 2))] = 0
    prefix_caching: Annotated[bool, Drawn((True, True, True, False))] = True
    max_running_requests: Annotated[int, within(1, 1024), Drawn((4, 2, 3, 6))] = 4
    max_context_len: Annotated[int, within(2, 1 << 16), Drawn((64, 48, 96))] = 96
    chunk_len: Annotated[int, within(1, 65536), Drawn((16, 8, 12, 32))] = 16
    prefill_interval: Annotated[int, within(1, 256), Drawn((4, 1, 2))] = 4

    main = ("page_size", "num_blocks", "window", "states", "chunk_len")
    needs = (
        Needs("window", {"states": (False,)}),
        Needs("state_budget", {"states": (True,)}),
        Needs("state_blocks", {"states": (True,)}),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.prefill_interval > self.page_size:
            raise InvalidConfig(f"prefill_interval is {self.prefill_interval}, want at most page_size {self.page_size}")

    @property
    def num_states(self) -> int:
        """The states that the releases hand out."""
        return self.max_running_requests + RESERVED_STATES - 1 + self.state_budget if self.states else 0

    @property
    def shares_prefixes(self) -> bool:
        return self.prefix_caching and self.window is None

    @property
    def shape(self) -> Shape:
        pools = [Pool(BLOCKS, self.num_blocks, self.window)]
        if self.states:
            pools.append(Pool(STATES, self.num_states, 2, has_states=True))
        return Shape(self.page_size, pools, self.chunk_len, self.max_running_requests, self.max_context_len)


def random_config(draw: Draw) -> LmdeployConfig:
    """A configuration with a small cache."""
    values = drawn(draw, LmdeployConfig)
    values["window"] = None if values["states"] else draw.one_of((None, None, None, 6, 9, 16))
    if not values["states"]:
        values["state_budget"] = values["state_blocks"] = 0
    least = -(-values["max_context_len"] // values["page_size"]) + 1
    values["num_blocks"] = least + draw.one_of((0, 1, 2, 4, 8, 16, -2))
    return LmdeployConfig(**values)
