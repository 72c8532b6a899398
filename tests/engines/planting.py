"""Changes a module of an engine in every process that imports it: in a server, and where an op-log of it is replayed.

To be called from a `sitecustomize`, when Python starts.
"""

import sys
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

from swarden.harness.core.known_bug import read_bug
from swarden.harness.strict.hook.sitecustomize import AfterImport

FINDINGS = Path(__file__).parents[2] / "harness/engines/sglang/findings"
PLANTED = ExitStack()  # until the process ends
NUM_OUTPUTS = 12  # more than the answers by which the settings of a server are learned


def plant_late(module: str, function: str, *arguments: object) -> None:
    """Call a function, "module:name", once a module has been imported."""
    place, _, name = function.partition(":")
    sys.meta_path.insert(0, AfterImport(module, lambda _: getattr(import_module(place), name)(*arguments)))


def plant_in_vllm(num_outputs: int) -> None:
    plant_late("vllm.v1.core.kv_cache_manager", "tests.engines.vllm.some_server:plant_use_after_free", num_outputs)


def plant_in_sglang(num_outputs: int) -> None:
    place = "tests.engines.sglang.some_server:plant_use_after_free"
    plant_late("sglang.srt.managers.schedule_batch", place, num_outputs)


def plant_fix_of_attention() -> None:
    """Plant the fix of a known bug of SGLang's server in this process."""
    bug = read_bug(FINDINGS / "windowed-layers-read-by-full-slots.toml")
    PLANTED.enter_context(bug.patches[0].planted())
