"""Changes a module of an engine in every process that imports it: in a server, and where an op-log of it is replayed.

To be called from a `sitecustomize`, when Python starts.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from swarden.harness.core.known_bug import read_bug

FINDINGS = Path(__file__).parents[2] / "harness/engines/sglang/findings"
PLANTED = ExitStack()  # until the process ends
NUM_OUTPUTS = 12  # more than the answers by which the settings of a server are learned


class Planting(MetaPathFinder):
    """Calls `plant` as soon as a module has been imported."""

    def __init__(self, module: str, plant: Callable[[], object]) -> None:
        self._module, self._plant = module, plant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_plant(module: ModuleType) -> None:
                execute(module)
                self._plant()

            spec.loader.exec_module = execute_and_plant  # type: ignore[method-assign]  # a loader is of one module
        return spec


def plant_late(module: str, function: str, *arguments: object) -> None:
    """Call a function, "module:name", once a module has been imported."""
    place, _, name = function.partition(":")
    sys.meta_path.insert(0, Planting(module, lambda: getattr(import_module(place), name)(*arguments)))


def plant_in_vllm(num_outputs: int) -> None:
    plant_late("vllm.v1.core.kv_cache_manager", "tests.engines.vllm.some_server:plant_use_after_free", num_outputs)


def plant_in_sglang(num_outputs: int) -> None:
    place = "tests.engines.sglang.some_server:plant_use_after_free"
    plant_late("sglang.srt.managers.schedule_batch", place, num_outputs)


def plant_fix_of_attention() -> None:
    """Plant the fix of a known bug of SGLang's server in this process."""
    bug = read_bug(FINDINGS / "windowed-layers-read-by-full-slots.toml")
    PLANTED.enter_context(bug.patches[0].planted())
