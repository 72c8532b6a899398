"""Real servers of vLLM on loopback, below `swarden attach`: a release that swarden has installed, with its packages."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from swarden.harness.engines.vllm_cpu.target import VLLM_CPU
from tests.real.models import BLOCK
from tests.real.traffic import Client

ROOT = Path(__file__).parents[2]
RELEASE = "0.32.0"
PYTHON_PATH = {"PYTHONPATH": os.pathsep.join(map(str, (*VLLM_CPU.folders_of(RELEASE), ROOT)))}  # the tests, too
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # the functions that reset and sleep
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
FLAGS = (
    *("--dtype", "float32", "--enforce-eager", "--generation-config", "vllm", "--scheduling-policy", "priority"),
    *("--max-model-len", "512", "--block-size", str(BLOCK), "--max-num-seqs", "8", "--max-num-batched-tokens", "128"),
)
SWARDEN = (sys.executable, "-m", "swarden.harness.cli")
BOOT_S, END_S = 900, 120  # on a busy machine: a boot takes a minute of CPU time
LOOK_S = 0.5


class Server(NamedTuple):
    """A server that is ready, and the file with all that its processes print."""

    client: Client
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def printed(self) -> str:
        return self.log.read_text(errors="replace")


def serve(model: Path, port: int, blocks: int) -> Sequence[object]:
    """The command of a server.

    It is not `vllm serve`, which asks for the version of the distribution vllm: that of this build is vllm-cpu.
    """
    server = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1")
    return (*server, "--port", port, "--num-gpu-blocks-override", blocks, *FLAGS)


@contextmanager
def serving(
    model: Path, blocks: int, options: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """A server of a model below `swarden attach OPTIONS`; at the end, no process of it is left.

    Raises AssertionError if it ends before it is ready.
    """
    port, log = free_port(), folder / "server.log"
    attach = (*SWARDEN, "attach", "vllm", "--require", *options, "--out", folder)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*map(str, (*attach, "--", *serve(model, port, blocks)))],
            env={**os.environ, **PYTHON_PATH, **ENVIRONMENT, **(environment or {})},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        server = Server(Client(port, seed=1), process, log)
        for _ in range(int(BOOT_S / LOOK_S)):
            if server.client.is_ready():
                break
            assert not has_ended(process, LOOK_S), server.printed[-4000:]
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of a session that got SIGTERM; raises AssertionError if it does not end."""
    for _ in range(int(END_S / LOOK_S)):
        listing = ["ps", "-o", "stat=,pid=,args=", "-s", str(process.pid)]
        rows = subprocess.run(listing, check=False, capture_output=True, text=True).stdout.splitlines()
        left = [row for row in rows if not row.startswith("Z")]  # a zombie waits for its parent, which may never ask
        if has_ended(process, LOOK_S) and not left:
            return
    subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
    process.wait()
    raise AssertionError(f"{END_S} s after SIGTERM there are still processes of the server:\n{left}")


def has_ended(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    """Whether a process ends within so many seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
