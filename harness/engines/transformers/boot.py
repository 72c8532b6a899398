"""The import of one release of transformers into this process, and what its continuous batching needs without a GPU."""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from swarden.harness.kit.released_code import BootedRelease, ReleasedCode, known, quiet_import
from swarden.harness.kit.stand_ins import replace_present
from swarden.harness.kit.streams import Stream, StreamEvent

ROOT = "generation.continuous_batching"
PLACES: Mapping[str, tuple[str, ...]] = {
    "Manager": (f"{ROOT}.continuous_api:ContinuousBatchingManager",),
    "Processor": (f"{ROOT}.continuous_api:ContinuousBatchProcessor",),
    "AsyncIOs": (f"{ROOT}.input_outputs:ContinuousBatchingAsyncIOs",),
    "longest": (f"{ROOT}.model_runner:infer_max_single_request_tokens",),
    "Config": ("generation.configuration_utils:ContinuousBatchingConfig",),
    "GenerationConfig": ("generation.configuration_utils:GenerationConfig",),
    "LogitsProcessorList": ("generation.logits_process:LogitsProcessorList",),
}
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "OMP_NUM_THREADS": "1"}
# Of the device: its total, reserved and allocated bytes, so that a run does not depend on the machine.
MEMORY = ("cpu", 1 << 40, 0, 0)


class TransformersRelease(ReleasedCode):
    """The release of transformers that is imported in this process."""

    def __init__(self, version: str) -> None:
        super().__init__(version, "transformers", PLACES, {})

    def make(self, name: str, **arguments: Any) -> Any:
        """An object of a part, made with the arguments that this release accepts."""
        return self.code(name)(**known(arguments, self.code(name)))


class TorchWithoutDevice:
    """Stands for the module torch in modules of the release: events of streams, and memory that is not pinned."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def Event(self, *args: Any, **kwargs: Any) -> StreamEvent:  # noqa: N802  # the name in torch
        return StreamEvent()

    def empty(self, *args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return self._torch.empty(*args, **kwargs)


def _load(version: str, folders: Sequence[Path]) -> TransformersRelease:
    with quiet_import(folders, (), ENVIRONMENT):
        names = ("continuous_api", "input_outputs", "model_runner", "offloading_manager", "cache")
        modules = {name: importlib.import_module(f"transformers.{ROOT}.{name}") for name in names}
        release = TransformersRelease(version)
    stand_ins = {
        "create_device_stream": lambda device: Stream(),
        "stream_context": lambda stream: nullcontext(),  # what is put on a stream is done at once, in order
        "get_device_and_memory_breakdown": lambda: MEMORY,
    }
    replace_present(modules.values(), stand_ins)
    for name in ("input_outputs", "offloading_manager"):
        vars(modules[name])["torch"] = TorchWithoutDevice(release.torch)
    release.code("AsyncIOs")._supported_device_types = ("cpu",)
    del release.code("Processor").__del__  # collects garbage, for each engine
    return release


boot = BootedRelease("transformers", _load, "transformers", PLACES)
