"""Plants a bug in every process that imports vLLM: in a server, and where an op-log of it is replayed.

To be called from a `sitecustomize`, when Python starts.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MODULE = "vllm.v1.core.kv_cache_manager"
NUM_OUTPUTS = 12  # more than the answers by which the settings of a server are learned


class Planting(MetaPathFinder):
    """Plants the bug as soon as the module has been imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_plant(module: ModuleType) -> None:
                execute(module)
                import_module("tests.engines.vllm.some_server").plant_use_after_free(NUM_OUTPUTS)

            spec.loader.exec_module = execute_and_plant  # type: ignore[method-assign]  # a loader is of one module
        return spec


def plant_late() -> None:
    sys.meta_path.insert(0, Planting())
