"""Real servers of vLLM and SGLang on loopback, below `swarden attach`: releases that swarden has installed."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from swarden.harness.engines.sglang.target import SGLANG
from swarden.harness.engines.vllm_cpu.target import VLLM_CPU
from tests.engines.some_servers import Replayed
from tests.real.models import BLOCK
from tests.real.traffic import OF_SGLANG, OF_VLLM, Api, Client

ROOT = Path(__file__).parents[2]
RELEASE, SGLANG_RELEASE = "0.32.0", "0.5.23"
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
PACKAGES = ROOT / ".swarden/real/sglang"  # of SGLang's server: `make test-engines-real`
SGLANG_ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(
        map(str, (ROOT / "tests/real/hook", PACKAGES, *SGLANG.folders_of(SGLANG_RELEASE)[:1], ROOT))
    ),
    "SGLANG_USE_CPU_ENGINE": "1",
    "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND": "python",  # a census reads the nodes of the tree
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
SGLANG_FLAGS = (
    *("--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--dtype", "float32"),
    *("--skip-tokenizer-init", "--skip-server-warmup", "--sleep-on-idle", "--enable-metrics"),
    *("--enable-priority-scheduling", "--default-priority-value", "0", "--context-length", "512"),
    *("--max-running-requests", "8", "--chunked-prefill-size", "64", "--schedule-conservativeness", "0.01"),
)
BEHIND_THE_PORT = {
    "vllm": PYTHON_PATH,
    "sglang": {"PYTHONPATH": os.pathsep.join(map(str, (*SGLANG.folders_of(SGLANG_RELEASE), ROOT)))},
}
REPLAY, SCRIPT_S = Path(__file__).with_name("replay.py"), 900
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


class Engine(NamedTuple):
    """An engine: its package, the variables of its server, the API of that, and its command for a size of its pools."""

    package: str
    variables: Mapping[str, str]
    api: Api
    command: Callable[[Path, int, int], Sequence[object]]

    def beside(self, variables: Mapping[str, str]) -> "Engine":
        """The same with further variables."""
        return self._replace(variables={**self.variables, **variables})


def serve(model: Path, port: int, blocks: int) -> Sequence[object]:
    """The command of a server.

    It is not `vllm serve`, which asks for the version of the distribution vllm: that of this build is vllm-cpu.
    """
    server = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1")
    return (*server, "--port", port, "--num-gpu-blocks-override", blocks, *FLAGS)


def serve_sglang(model: Path, port: int, tokens: int) -> Sequence[object]:
    server = (sys.executable, "-m", "sglang.launch_server", "--model-path", model, "--host", "127.0.0.1")
    return (*server, "--port", port, "--max-total-tokens", tokens, *SGLANG_FLAGS)


VLLM = Engine("vllm", {**PYTHON_PATH, **ENVIRONMENT}, OF_VLLM, serve)
SGLANG_ON_CPU = Engine("sglang", SGLANG_ENVIRONMENT, OF_SGLANG, serve_sglang)


def run_with_engine(environment: Mapping[str, str], *arguments: object) -> str:
    """The output of a script that runs with an engine and its packages on the path."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, env={**os.environ, **environment}, check=True, capture_output=True, text=True, timeout=SCRIPT_S
    ).stdout


def replayed(package: str, log: str, *options: str) -> Replayed:
    """A replay behind the port, on the release of the server."""
    found = json.loads(run_with_engine(BEHIND_THE_PORT[package], REPLAY, package, log, *options))
    return Replayed(**{**found, "fingerprints": set(found["fingerprints"])})


@contextmanager
def serving(model: Path, size: int, options: Sequence[str], folder: Path, engine: Engine = VLLM) -> Iterator[Server]:
    """A server of a model below `swarden attach OPTIONS`; at the end, no process of it is left.

    `size` is that of its pools: blocks of vLLM, tokens of SGLang.

    Raises AssertionError if it ends before it is ready.
    """
    port, log = free_port(), folder / "server.log"
    attach = (*SWARDEN, "attach", engine.package, "--require", *options, "--out", folder)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*map(str, (*attach, "--", *engine.command(model, port, size)))],
            env={**os.environ, **engine.variables},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        server = Server(Client(port, engine.api, seed=1), process, log)
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
    """A free port below those that a system gives away: a server binds it a minute later."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("100 ports are in use")
