"""A system in a process of its own: a twin of an engine, if a process can hold only one of the two."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any, NamedTuple

from swarden.harness.core.changes import UNCHANGED, Changes
from swarden.harness.core.errors import RemoteError, UsageError, text_of
from swarden.harness.core.linked import joined
from swarden.harness.core.ops import Op
from swarden.harness.core.origins import UNKNOWN_CODE
from swarden.harness.core.process import Process, ProcessDied
from swarden.harness.core.registry import target_of
from swarden.harness.core.system import System
from swarden.harness.core.target import prepare
from swarden.harness.core.target_fault import blamed_on
from swarden.invariants.reference import Expectation, Reference


class Build(NamedTuple):
    """The system to build: `configs` are in their JSON form, `changes` are planted until the next build."""

    engine: str
    machine: str
    configs: list[dict[str, Any]]
    model: str
    changes: Changes


class Reply(NamedTuple):
    """The state of the system after a call; `expectations` has the expected outputs that have changed."""

    result: bool
    has_work: bool
    drain_bound: int
    expectations: dict[int, Expectation]


class TwinFailed(RuntimeError):
    """The process of a twin has died."""


class RemoteSystem:
    """A system in another process, as its clients see it: no snapshots and no events; its errors are raised here."""

    def __init__(self, build: Build) -> None:
        self.reference = Reference()
        self._process = _process_of(build.engine)
        self._last = self._call("build", build)

    @property
    def has_work(self) -> bool:
        return self._last.has_work

    @property
    def drain_bound(self) -> int:
        return self._last.drain_bound

    def do(self, op: Op) -> bool:
        return self._call("do", op).result

    def heal(self) -> None:
        self._call("heal")

    def clear(self) -> None:
        self._call("clear")

    def _call(self, name: str, *arguments: Any) -> Reply:
        self._last = _call(self._process, name, *arguments)
        self.reference.expectations.update(self._last.expectations)
        return self._last


def boot(engine: str) -> None:
    """Start the process for the twins of an engine, which imports the engine."""
    _call(_process_of(engine), "boot", engine)


def _call(process: Process, name: str, *arguments: Any) -> Reply:
    """Call a function in the process; raises UsageError and RemoteError as it did.  An interrupt ends the process."""
    try:
        reply = process.call(_answer, name, arguments)
    except ProcessDied as error:
        raise TwinFailed(f"the process of the twin ended in {name}") from error
    finally:
        if process.has_ended:
            _process_of.cache_clear()
    if isinstance(reply, RemoteError):
        raise reply
    assert isinstance(reply, Reply), f"{reply!r} is not a reply"
    return reply


@cache
def _process_of(_engine: str) -> Process:
    """The process for the twins of an engine; it is kept, because importing a serving engine takes seconds."""
    return Process()


# --- in the process


class _Server:
    """The system that was built last."""

    def __init__(self) -> None:
        self._planted = ExitStack()
        self._changes = UNCHANGED
        self.code = UNKNOWN_CODE
        self._engine = ""
        self._system: System | None = None
        self._sent: dict[int, tuple[int, str | None]] = {}

    def build(self, build: Build) -> None:
        target = target_of(build.engine)
        prepare(target)
        self.code = target.code
        if build.changes != self._changes:
            self._planted.close()
            self._changes = UNCHANGED
            self._planted.enter_context(build.changes.planted(target))
            self._changes = build.changes
        self._sent.clear()
        self._engine = target.name
        with blamed_on(target.name, "build"):
            configs = [target.decode(config) for config in build.configs]
            systems = target.systems(build.machine, configs, build.model)
        self._system = joined(systems, target.machines[build.machine].ops)

    def call(self, name: str, arguments: tuple[Any, ...]) -> Reply:
        if name == "boot":
            prepare(target_of(*arguments))
            return Reply(result=True, has_work=False, drain_bound=0, expectations={})
        if name == "build":
            self.build(*arguments)
        system = self._system
        assert system is not None, f"{name} before build"
        calls: dict[str, Callable[..., object]] = {"do": system.do, "heal": system.heal, "clear": system.clear}
        result = calls[name](*arguments) if name in calls else True
        with blamed_on(self._engine, "capture"):
            system.capture()  # some ports derive the owners of units in events from the last capture
            system.take_events()
        found = {one: (len(own.tokens), own.reason) for one, own in system.reference.expectations.items()}
        changed = {
            one: system.reference.expectations[one] for one, seen in found.items() if self._sent.get(one) != seen
        }
        self._sent = found
        return Reply(bool(result), system.has_work, system.drain_bound, changed)


@cache
def _server() -> _Server:
    """The server of this process."""
    return _Server()


def _answer(name: str, arguments: tuple[Any, ...]) -> Reply | RemoteError:
    """The reply to a call, or its error in a form that every process can read."""
    server = _server()
    try:
        return server.call(name, arguments)
    except UsageError:
        raise
    except Exception as error:
        return RemoteError(f"{type(error).__name__}: {text_of(error)}", server.code.fingerprint_of(error))
