"""The server that a run drives: where it is, and how it is started again."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shutil import copyfile
from time import monotonic, sleep
from urllib.parse import urlsplit

import msgspec

from swarden.harness.core.errors import EngineGone, UsageError
from swarden.harness.core.files import opened
from swarden.harness.core.printable import printable
from swarden.harness.core.target_fault import TargetFault
from swarden.harness.engines.server.answers import IsSleeping, Token, WrongForm, figures_in
from swarden.harness.engines.server.apis import OK, Api, Wanted, api_of, from_page, without_parts
from swarden.harness.engines.server.client import ANSWER_S, QUICK_S, Address, Call, Calls, Reply, text_at
from swarden.harness.engines.server.config import ServerConfig
from swarden.harness.engines.server.masking import Secrets, masked
from swarden.harness.kit.dialects import FLUSH, RESUME, WAKE
from swarden.harness.strict.recording import FOLDER_VARIABLE
from swarden.invariants.events import Probed

VARIABLE = "SWARDEN_SERVER"  # by which a command tells its worker processes what --url, --restart and --header say
BOOT_S, POLL_S, LOOK_S = 900, 0.25, 10
PAGE_SIZE = 16  # of swarden's engine as a judge
MISSING, SERVER_ERROR = 404, 500  # the least status of an error that the request has not caused
LOGS = Path(".swarden/servers")
LAST_BYTES = 1 << 16  # of the log of a server
MOST_OF_NAME = 80  # characters of the name of an error, as a part of a file's name
ERRORS = ("Error", "Exception", "Abort", "Fault")  # in the name of an error
SUPERVISE = (  # ends the server and its children when its parent ends, for any reason
    "import os, signal, subprocess, sys, threading\n"
    "child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)\n"
    "def watch():\n"
    "    os.read(0, 1)\n"
    "    os.killpg(0, signal.SIGKILL)\n"
    "threading.Thread(target=watch, daemon=True).start()\n"
    "os._exit(child.wait() % 256)\n"  # the thread reads still
)


class Server(msgspec.Struct, frozen=True):
    """What the command line says of a server; the headers can be secrets.  `rate` are calls a second; 0: any number."""

    url: str
    restart: str = ""
    headers: Mapping[str, str] = {}
    reference: str = ""
    remote: bool = False
    rate: float = 0.0
    option: str = "--url"  # that names it

    def publish(self) -> None:
        """Pass this server on to the worker processes; raises UsageError for text that is none, or is no command."""
        try:
            encoded = msgspec.json.encode(self).decode()
            shlex.split(self.restart)
        except UnicodeEncodeError as error:
            raise UsageError(f"--url, --reference or --restart: {error}") from error
        except ValueError as error:
            raise UsageError(f"--restart: {error}") from error
        os.environ[VARIABLE] = encoded

    @property
    def masked_restart(self) -> str:
        """The command without the values of keys, tokens and variables."""
        return masked(self.restart)

    @property
    def secrets(self) -> Secrets:
        """The secrets that a server may print: the values of headers, and the masked parts of the command."""
        shown = self.masked_restart
        hidden = [word for word in re.split(r"[\s\"'=:,]+", self.restart) if word not in shown]
        return Secrets([*self.headers.values(), *hidden])


def published() -> Server:
    """What the command has published; raises UsageError if it has not."""
    if VARIABLE not in os.environ:
        raise UsageError("server: which one? give --url http://HOST:PORT, and --restart COMMAND if you can")
    return msgspec.json.decode(os.environ[VARIABLE].encode(), type=Server)


@dataclass
class Connection:
    """A server that is driven, and one that is its reference: of a URL, or swarden's engine with a checkpoint.

    Without one the server judges itself, without its cache.
    """

    server: Server
    process: "subprocess.Popen[bytes] | None" = None
    log: Path | None = None
    checks: Path | None = None  # where a strict check inside of the process writes op-logs
    reference: "Connection | None" = None
    missing: set[str] = field(default_factory=set)  # acts without a page
    has_recorded: bool = False  # the strict check of the server has written its op-log, and checks no more
    has_failed: bool = False  # it may have lost memory, which no flush brings back
    log_start: int = 0  # of the current round
    invalid: str = ""  # why a request of the current run is invalid; "": all are valid
    looks_s: float = QUICK_S  # seconds left for all pages of metrics, until the next round or token

    def __post_init__(self) -> None:
        self.address = Address(self.server.url, self.server.headers, Calls(self.server.rate), self.server.secrets)
        self.address.check(remote=self.server.remote, option=self.server.option)
        if "://" in self.server.reference:
            own = self.server
            judge = Server(own.reference, remote=own.remote, rate=own.rate, option="--reference")
            self.reference = Connection(judge)
        elif self.server.reference and not Path(self.server.reference, "config.json").is_file():
            where = printable(self.server.reference)
            raise UsageError(f"--reference: {where} is neither http://HOST:PORT nor a folder with config.json")

    @cached_property
    def api(self) -> Api:
        """The API that the pages of the server show."""
        return api_of(api_at(self.address))

    @property
    def is_running(self) -> bool:
        """Whether the process runs, if this one has started it."""
        return self.process is None or self.process.poll() is None

    @property
    def is_healthy(self) -> bool:
        """Whether it answers at all; a server that is busy, or does not know this client, answers too."""
        return self.is_running and Call(self.address).page("/health").status != 0

    def renew(self, api: Api) -> None:
        """Make the server ready for a run: flushed, or a new one if it cannot be flushed, is not idle or has failed.

        A new server is flushed too, because a flush is a part of each run: a run that fails does so on a new server.
        Without --restart the server stays as it is.  Raises EngineGone if it does not answer.
        """
        if not self.server.restart and not self.is_healthy:
            raise EngineGone(f"{self.address.shown} does not answer; start the server again, or give --restart")
        self.invalid = ""
        self.resume(api)
        is_whole = not (self.has_recorded or self.has_failed) and self.is_healthy
        is_as_new = is_whole and self._is_flushed(api) and self._is_idle(api)
        if self.server.restart and (self.process is None or not is_as_new):
            self.start()
            self._is_flushed(api)

    def act(self, api: Api, act: str) -> Reply:
        reply = Call(self.address, is_act=True).made("POST", api.dialect.acts[act], {}, limit_s=QUICK_S)
        if reply.status == MISSING:
            self.missing.add(act)
        return reply

    def resume(self, api: Api) -> None:
        """A run that was ended from outside may have left the server paused, or asleep."""
        if RESUME in api.dialect.acts and self.is_running:
            self.act(api, RESUME)
        page = text_at(self.address, path := "/is_sleeping") if WAKE in api.dialect.acts else None
        if page is not None and from_page(self.address, path, page.encode(), IsSleeping).is_sleeping:
            self.act(api, WAKE)

    def _is_flushed(self, api: Api) -> bool:
        return FLUSH in api.dialect.acts and self.act(api, FLUSH).status == OK

    def _is_idle(self, api: Api) -> bool:
        """Whether the metrics show no request and no KV in use, which a failed run may have left."""
        shown = figures(self)
        return not any(map(shown.get, api.dialect.metrics.at_rest))

    def start(self) -> None:
        """Start the server with the command of --restart; raises EngineGone if it does not answer in time."""
        self._end()
        if Call(self.address).page("/health", LOOK_S).status:
            raise EngineGone(f"--restart: another server answers at {self.address.shown}; end it, or name another port")
        parts = urlsplit(self.server.url)
        self.log = LOGS / f"{parts.hostname}-{parts.port}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.checks = self.log.with_suffix(".checks").resolve()
        for recorded in self.checks.glob("*.oplog"):
            recorded.unlink()
        self.has_recorded = self.has_failed = False
        self.log_start = 0
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        with opened(self.log, "wb", inside=LOGS) as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SUPERVISE, *shlex.split(self.server.restart)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=environment | {FOLDER_VARIABLE: str(self.checks)},
            )
        until = monotonic() + BOOT_S
        while monotonic() < until:
            if not self.is_running:
                raise EngineGone(f"--restart: the server ends at once: {self.last_words()[0]}")
            if Call(self.address).page("/health", LOOK_S).status in (OK, MISSING):
                return
            sleep(POLL_S)
        raise EngineGone(f"--restart: the server does not answer at {self.address.shown} after {BOOT_S} s")

    def close(self) -> None:
        """End the servers that this process has started; a log stays until the next start."""
        self._end()
        if self.reference is not None:
            self.reference.close()
            self.reference = self.reference if "://" in self.server.reference else None

    def _end(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None, "the process has a pipe, by which it ends"
            self.process.stdin.close()
            with suppress(ProcessLookupError):  # what it has started can outlive it
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None

    def last_words(self) -> tuple[str, str]:
        """The first line at the end of the log that names an error, the root cause; and the name of that error.

        Without one, the last line.  The log is kept under this name, whatever is started later.
        """
        if self.log is None:
            return "its log is not known without --restart", "unknown"
        with self.log.open("rb") as file:
            size = self.log.stat().st_size
            file.seek(max(self.log_start if size > self.log_start else 0, size - LAST_BYTES))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        line, cause = (lines[-1] if lines else "it wrote nothing"), "exit"
        for text in (line.rpartition("] ")[2] if "] " in line else line for line in lines):
            words = re.split(r"\W", text.partition(" ")[0])
            if named := [word for word in words if any(error in word for error in ERRORS)]:
                line, cause = text, named[0][:MOST_OF_NAME]
                break
        copy = self.log.with_name(f"{self.log.stem}-{cause}.log")
        copyfile(self.log, copy)
        return f"{printable(self.address.secrets.masked(line)[:200])} (its log is {copy})", cause

    def judge(self, api: Api, config: ServerConfig, wanted: Wanted, answer: Sequence[int]) -> list[Token] | Reply:
        """The answer as a server without a cache gives it; the reply of the server if it gives none."""
        if self.server.reference and self.reference is None:
            if not api.has_ids:
                raise UsageError(f"--reference: a checkpoint reads token ids, {api.name} has texts; give a URL")
            self.reference = Connection(decoder_of(Path(self.server.reference), config.max_context_len))
            try:
                self.reference.start()
            except EngineGone as error:
                raise TargetFault(f"--reference: {error}", "target/reference") from error
        judge, address = api, self.address
        if self.reference is not None:
            judge = self.reference.api if api.has_ids else api  # texts are compared with texts
            address = self.reference.address
        try:
            cold = judge.cold(address, wanted, answer, config.model)
        except WrongForm as error:
            cold = without_parts(error)
        if self.reference is not None and isinstance(cold, Reply) and not 0 < cold.status < SERVER_ERROR:
            raise TargetFault(f"--reference: {address.shown} does not judge: {cold.error}", "target/reference")
        return cold

    def replies(
        self, api: Api, config: ServerConfig, wanted: Sequence[Wanted], *, at_once: bool = False
    ) -> list[Reply]:
        """The replies to requests, sent one after the other or at the same time."""

        def made(request: Wanted) -> Reply:
            body = api.body(request, config.model)
            return Call(self.address).made("POST", api.dialect.path, body, limit_s=ANSWER_S)

        with ThreadPoolExecutor(max(1, len(wanted)) if at_once else 1) as threads:
            return list(threads.map(made, wanted))

    def probe(self, api: Api, config: ServerConfig, length: int) -> Probed:
        """Send a cold prompt of this length."""
        span, preemptions = config.last_valid - config.first_token + 1, api.dialect.metrics.preemptions
        prompt = [config.first_token + place * 7 % span for place in range(length)]
        before = figures(self).get(preemptions)
        [reply] = self.replies(api, config, [Wanted(prompt, 1, is_cold=True)])
        after = figures(self).get(preemptions)
        grown = 0.0 if before is None or after is None else after - before
        return Probed(length, reply.status, max(0, int(grown)))


def figures(connection: Connection) -> dict[str, float]:
    """The metrics; none if they cannot be read, or if the time for all of them is over."""
    if not connection.looks_s:
        return {}
    until = monotonic() + connection.looks_s
    page = Call(connection.address).page("/metrics", connection.looks_s)
    connection.looks_s = max(0.0, until - monotonic())
    return figures_in(page.text) if page.status == OK else {}


def begin_round(connection: Connection) -> None:
    """Errors that the log has before this round are not the cause of a death in it."""
    connection.log_start = connection.log.stat().st_size if connection.log is not None else 0
    connection.looks_s = QUICK_S


def recorded(connection: Connection) -> Path | None:
    """An op-log that a strict check inside of the server has written, moved to the logs; None if there is none."""
    written = sorted(connection.checks.glob("*.oplog")) if connection.checks is not None else []
    connection.has_recorded |= bool(written)
    return written[0].replace(LOGS / written[0].name) if written else None


def decoder_of(checkpoint: Path, context_len: int) -> Server:
    """swarden's engine with this checkpoint, for one request at a time."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sizes = {"max_context_len": context_len, "full_pages": context_len // PAGE_SIZE + 1, "max_running_requests": 1}
    words = [word for name, value in sizes.items() for word in ("--set", f"{name}={value}")]
    serve = [sys.executable, "-m", "swarden", "serve", "--checkpoint", str(checkpoint), "--port", str(port)]
    return Server(f"http://127.0.0.1:{port}", shlex.join([*serve, "--set", f"page_size={PAGE_SIZE}", *words]))


def api_at(address: Address) -> str:
    """The API of a server, by the pages that it has."""
    names = figures_in(text_at(address, "/metrics") or "")
    for prefix, name in (("vllm:", "vllm"), ("sglang:", "sglang"), ("llamacpp:", "llama.cpp")):
        if any(metric.startswith(prefix) for metric in names):
            return name
    for path, name in (("/get_server_info", "sglang"), ("/props", "llama.cpp"), ("/version", "vllm")):
        if text_at(address, path) is not None:
            return name
    return "openai"
