"""Recurrent states: their pool, which is the release's.

Real: from 0.5.13: `HybridReqToTokenPool`, `MambaPool`, `MambaSlotAllocator`, `MambaRadixCache` or the component of
`UnifiedRadixCache`; from 0.5.17 buffers.
Stand-in: a tag of the whole prefix per slot; the copies that the model's kernels make to tracked slots.
Shows: a state of another prefix, or one that was not cleared.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from swarden.harness.core.errors import InvalidConfig
from swarden.harness.core.validation import shortened
from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.capability import ONE_TREE, SglangCapability, Table, Terms
from swarden.harness.engines.sglang.parts.pair import Side
from swarden.harness.engines.sglang.parts.sessions import Sessions
from swarden.harness.engines.sglang.pools import MAX_PAGES
from swarden.harness.engines.sglang.states import STATE_POOL, STATE_WINDOW
from swarden.harness.kit.launch import Line
from swarden.harness.kit.part import off
from swarden.harness.kit.released_code import known
from swarden.harness.kit.settings import IfReleaseHas, Needs, OneOf, PartOf, within
from swarden.invariants.view import ComponentView

STATES_PER_RUNNING = 3  # MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO of the releases, without buffers
STATE_STRATEGIES = NO_BUFFER, BUFFER, LAZY_BUFFER = "no_buffer", "extra_buffer", "extra_buffer_lazy"
KERNEL_CHUNK = 64  # tokens, of the kernels of most models
AUTO = "auto"  # of a server
WITHOUT_BUFFERS: Mapping[str, Any] = {"overlap": False, "page_size": 1}  # what the strategy no_buffer needs
STATE_LAYER = 2  # of the model; without a window it is the first one, because a load ends with the last layer


class States(SglangCapability, frozen=True):
    """`state_slots` enables a pool of so many recurrent states.

    `state_strategy` is --mamba-radix-cache-strategy: with buffers, each request keeps the states of its prefixes at
    multiples of `state_interval` (--mamba-track-interval) while it decodes, and in a prefill at multiples of
    `state_chunk_len`, the chunk of the model's kernels.
    """

    state_slots: Annotated[Annotated[int, within(3, MAX_PAGES)] | None, IfReleaseHas("state_pool")] = None
    state_strategy: Annotated[str, OneOf(STATE_STRATEGIES), IfReleaseHas("tracked_states"), PartOf("state_slots")] = (
        NO_BUFFER
    )
    state_interval: Annotated[int, within(1, 65536), PartOf("state_slots")] = 8
    state_chunk_len: Annotated[int, within(2, 256), PartOf("state_slots")] = 4

    needs = (Needs("state_slots", {**off(Side, Sessions), **ONE_TREE}),)
    server_need = "recurrent states"
    tree = "MambaRadixCache"
    component = "MAMBA"

    @property
    def have_buffers(self) -> bool:
        return self.state_strategy != NO_BUFFER

    @staticmethod
    def of_line(line: Line, values: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a model with states, beside other values; "auto" is the strategy of the release."""
        strategy = line.word("mamba-radix-cache-strategy", line.word("mamba-scheduler-strategy", AUTO))
        if strategy == AUTO:
            strategy = BUFFER if line.is_since("0.5.17") else NO_BUFFER
        chunk, of_drafts = max(2, line.scaled(KERNEL_CHUNK)), 2 * ((values.get("draft_len") or 0) + 1)
        unit, running = max(chunk, values["page_size"]), values["max_running_requests"]
        interval = -(-max(line.length("mamba-track-interval", 256), of_drafts) // unit) * unit
        slots = max((STATES_PER_RUNNING + 2) * running, line.number("max-mamba-cache-size", 0) // line.scale)
        lens = {"state_chunk_len": chunk, "state_interval": interval}
        without_overlap = {"overlap": False} if strategy == NO_BUFFER else {}
        return {"state_slots": slots, **lens, "state_strategy": strategy, **without_overlap}

    def least_slots(self, config: Any) -> int:
        """Three states for each running request, and those that it keeps: get_mamba_tracking_slots of the releases."""
        tracked = 0 if not self.have_buffers else 2 if self.state_strategy == BUFFER and config.overlap else 1
        return int((STATES_PER_RUNNING + tracked) * config.max_running_requests)

    def check(self, config: Any) -> None:
        """The checks of a server."""
        strategy, chunk = self.state_strategy, self.state_chunk_len
        interval, page = self.state_interval, config.page_size
        if self.state_slots is None:
            if self.have_buffers:
                raise InvalidConfig(f'state_strategy is "{strategy}" without state_slots, want "{NO_BUFFER}"')
            return
        if self.state_slots < (least := self.least_slots(config)):
            raise InvalidConfig(f"state_slots is {self.state_slots}, want at least {least} for these requests")
        wanted = {} if strategy == BUFFER else {"overlap": True} if self.have_buffers else WITHOUT_BUFFERS
        for name, want in wanted.items():
            if (value := getattr(config, name)) != want:
                beside = f"{shortened(value)} with state_strategy {strategy}"
                raise InvalidConfig(f"{name} is {beside}, want {shortened(want)}")
        if max(chunk, page) % min(chunk, page):
            raise InvalidConfig(f"state_chunk_len is {chunk}, want a multiple or divisor of page_size")
        if interval % page or interval < chunk:
            want = f"a multiple of page_size {page} that is at least state_chunk_len {chunk}"
            raise InvalidConfig(f"state_interval is {interval}, want {want}")
        if self.have_buffers and interval <= (length := config.drafts.length):
            raise InvalidConfig(f"state_interval is {interval}, want more than draft_len {length}")

    def terms(self, config: Any) -> Terms:
        args = {"mamba_radix_cache_strategy": self.state_strategy, "mamba_track_interval": self.state_interval}
        return Terms(server_args=args, cache_params=self._buffers, attributes={"is_hybrid_ssm": True})

    @property
    def _buffers(self) -> Mapping[str, Any]:
        return {
            "enable_mamba_extra_buffer": self.have_buffers,
            "enable_mamba_extra_buffer_lazy": self.state_strategy == LAZY_BUFFER,
        }

    def view(self, page_size: int) -> ComponentView:
        return ComponentView(STATE_POOL, STATE_WINDOW, page_size, has_states=True)

    def table(self, release: SglangRelease, config: Any, server_args: Any) -> Table:
        """The table has the pool of states, which holds one int64 per slot.

        The states after drafts, which it keeps during a verification, are in `SglangSpeculation` instead.
        """
        layers, of_shape = [STATE_LAYER if config.has_window else 0], release.code("Mamba2StateShape")
        ones = ("intermediate_size", "conv_dim", "ssm_state_size", "num_heads", "head_dim")
        further = dict.fromkeys((*ones, "state_size", "conv_kernel", "num_k_heads_per_tp"), 1)
        shape = of_shape(conv=[(1, 1)], temporal=(1, 1, 1), **known(further, of_shape))
        dtype = release.code("Mamba2StateDType")(conv=release.torch.int64, temporal=release.torch.int64)
        more = {
            "mamba_size": self.state_slots,
            "mamba_spec_state_size": server_args.max_running_requests,
            "cache_params": release.code("Mamba2CacheParams")(shape=shape, dtype=dtype, layers=layers),
            "mamba_layer_ids": layers,
            "enable_overlap_schedule": not server_args.disable_overlap_schedule,
            **self._buffers,
        }
        return Table("HybridReqToTokenPool", more)

    def prepare(self, release: SglangRelease, server_args: Any) -> None:
        """Set what a server reads from a model; without buffers a state is cached after any token."""
        grid = max(self.state_chunk_len, server_args.page_size) if self.have_buffers else 1
        server_args._mamba_cache_chunk_size = grid

    def equip(self, release: SglangRelease, scheduler: Any) -> None:
        scheduler.model_config.hf_text_config.mamba_chunk_size = self.state_chunk_len

    def inapplicable(self, config: Any, release: SglangRelease) -> Collection[str]:
        """With buffers or drafts it leaves them only up to the last state that it keeps."""
        return ("ended_requests_leave_their_kv_cached",) if self.have_buffers or config.drafts.is_on else ()
