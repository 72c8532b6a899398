"""The import of one release of lmdeploy into this process, and what its PyTorch engine needs without a GPU."""

import importlib
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from swarden.harness.kit.clock import EngineClock
from swarden.harness.kit.released_code import BootedRelease, Feature, ReleasedCode, optional, quiet_import
from swarden.harness.kit.stand_ins import Silent, replace_triton

PLACES: Mapping[str, tuple[str, ...]] = {
    "Engine": ("pytorch.engine.engine:Engine",),
    "build_engine_loop": ("pytorch.engine.engine_loop:build_engine_loop",),
    "EngineInstance": ("pytorch.engine.engine_instance:EngineInstance",),
    "EngineConfig": ("messages:PytorchEngineConfig",),
    "GenerationConfig": ("messages:GenerationConfig",),
    "ResponseType": ("messages:ResponseType",),
    "ModelConfig": ("pytorch.config:ModelConfig",),
    "ExecutorBase": ("pytorch.engine.executor.base:ExecutorBase",),
    "ModelAgent": ("pytorch.engine.model_agent.agent:BaseModelAgent",),
    "State": ("pytorch.paging.seq_states.states:StateBase",),
    "build_strategy_factory": ("pytorch.strategies:build_strategy_factory",),
    "SpecAgent": ("pytorch.spec_decode.base:BaseSpecModelAgent",),
    "DistContext": ("pytorch.distributed:DistContext",),
    "fill_logits_indices": ("pytorch.engine.inputs_maker:fill_logits_indices",),
    "restore_checkpoint": ("pytorch.engine.model_agent.agent:_restore_cache_checkpoint",),
    "save_checkpoint": ("pytorch.engine.model_agent.agent:_save_cache_checkpoint",),
}
FEATURES = {
    "serves_prompts_alone": Feature(
        "a request without new tokens gets none; before, it gets one",
        lambda release: release.code("fill_logits_indices") is not None,
    )
}
ABSENT = {  # packages that need not be installed, with the reason
    "mmengine": "configurations of other tools are not read",
    "PIL": "images are not served",
    "requests": "nothing is downloaded",
    "urllib3": "nothing is downloaded",
    "pybase64": "images are not served",
    "zmq": "engines in other processes are not driven",
    "xgrammar": "guided decoding is not driven",
    "shortuuid": "the HTTP server is not started",
}
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": "1"}
PAGING = "pytorch.paging"
TIMED = (  # modules whose order of things depends on the time
    f"{PAGING}.scheduler",
    f"{PAGING}.prefill_scheduler",
    f"{PAGING}.block_manager.base_block_manager",
    f"{PAGING}.block_trie.checkpoint_lifecycle",
    "pytorch.strategies.ar.sequence",
)
NODES, ORDERED_BY_ID = f"{PAGING}.block_trie.trie", ("kv_lifecycle", "checkpoint_lifecycle")


class LmdeployRelease(ReleasedCode):
    """The release of lmdeploy that is imported in this process."""

    def __init__(self, version: str) -> None:
        super().__init__(version, "lmdeploy", PLACES, FEATURES)


def _load(version: str, folders: Sequence[Path]) -> LmdeployRelease:
    with quiet_import(folders, ABSENT, ENVIRONMENT):
        replace_triton()
        engine = importlib.import_module("lmdeploy.pytorch.engine.engine")
        importlib.import_module("lmdeploy.pytorch.engine.engine_loop")
        release = LmdeployRelease(version)
        timed = [optional(f"lmdeploy.{name}") for name in TIMED]
    EngineClock(tick_s=1).serve([module for module in timed if module is not None])  # the releases cut it to integers
    _number_nodes()
    _report_statuses(release.code("State"))
    vars(engine).update(EngineChecker=lambda **_: Silent(), EngineP2PConnection=lambda _: Silent(), gc=Silent())
    return release


def _number_nodes() -> None:
    """Equal access times are ordered by the ids of the nodes: let these be their numbers."""
    trie, numbers = vars(importlib.import_module(f"lmdeploy.{NODES}")), count(1)
    base = trie["Node"]

    class NumberedNode(base):  # type: ignore[misc, valid-type]  # the release has no types here
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.number = next(numbers)

    trie["Node"] = NumberedNode
    for name in ORDERED_BY_ID:
        vars(importlib.import_module(f"lmdeploy.{PAGING}.block_trie.{name}"))["id"] = lambda node: node.number


def _report_statuses(state: Any) -> None:
    """Let the meta object of an engine, which all its requests have, know when the status of one changes."""
    change = state.to_state

    def to_state(self: Any, new_state: Any) -> None:
        before = self.status.name
        change(self, new_state)
        self.seq._seq_meta.on_status(self.seq, before, new_state.status.name)

    state.to_state = to_state


boot = BootedRelease("lmdeploy", _load)
