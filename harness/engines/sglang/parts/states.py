"""The pool of recurrent states, which is the release's."""

from typing import Any

from swarden.harness.engines.sglang.boot import SglangRelease
from swarden.harness.engines.sglang.config import LAZY_BUFFER, NO_BUFFER, SglangConfig
from swarden.harness.engines.sglang.part import Core, SglangPart
from swarden.harness.engines.sglang.states import SglangStates
from swarden.harness.kit.released_code import known

DEVICE = "cpu"
STATE_LAYER = 2  # of the model; without a window it is the first one, because a load ends with the last layer


def rows_with_states(release: SglangRelease, config: SglangConfig, row_len: int) -> Any:
    """The release's request table with its pool of states, which holds one int64 per slot.

    The states after drafts, which it keeps during a verification, are in `SglangSpeculation` instead.
    """
    layers, slots = [0 if config.sliding_window is None else STATE_LAYER], config.state_slots
    shape = release.code("StateShape")(
        conv=[(1, 1)],
        temporal=(1, 1, 1),
        **known(
            dict.fromkeys(("intermediate_size", "conv_dim", "ssm_state_size", "num_heads", "head_dim"), 1)
            | dict.fromkeys(("state_size", "conv_kernel", "num_k_heads_per_tp"), 1),
            release.code("StateShape"),
        ),
    )
    dtype = release.code("StateDType")(conv=release.torch.int64, temporal=release.torch.int64)
    kind = release.code("HybridReqToTokenPool")
    wanted = {
        "size": config.max_running_requests,
        "mamba_size": slots,
        "mamba_spec_state_size": config.max_running_requests,
        "max_context_len": row_len,
        "device": DEVICE,
        "enable_memory_saver": False,
        "cache_params": release.code("StateParams")(shape=shape, dtype=dtype, layers=layers),
        "mamba_layer_ids": layers,
        "enable_mamba_extra_buffer": config.state_strategy != NO_BUFFER,
        "enable_mamba_extra_buffer_lazy": config.state_strategy == LAZY_BUFFER,
        "enable_overlap_schedule": config.overlap,
    }
    return kind(**known(wanted, kind))


class SglangStateTags(SglangPart):
    """The states of one engine.  KV is cached up to the last state that was kept of it."""

    def __init__(self, core: Core, config: SglangConfig) -> None:
        self._states = SglangStates(core.memory.rows)
        if config.state_strategy != NO_BUFFER or config.draft_len is not None:
            self.unreported = frozenset(("ended_requests_leave_their_kv_cached",))

    def lose_kv(self) -> bool:
        self._states.clear()
        return False
